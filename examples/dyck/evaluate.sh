#!/usr/bin/env bash
# Evaluate trained models: perplexity, compared with the source's, and accuracy of closing brackets by distance.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run evaluate "$here/recipe.yaml" "$@"
