#!/usr/bin/env bash
# Perplexity beside the source's, and accuracy of closing brackets by distance, of trained models.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run evaluate "$here/recipe.yaml" "$@"
