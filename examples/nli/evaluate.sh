#!/usr/bin/env bash
# Classify the test set of SNLI or MultiNLI with trained models.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run evaluate "$here/recipe.yaml" "$@"
