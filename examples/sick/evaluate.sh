#!/usr/bin/env bash
# Classify the test set of SICK with trained models.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run evaluate "$here/recipe.yaml" "$@"
