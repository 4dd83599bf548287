#!/usr/bin/env bash
# Translate the IWSLT14 test set with trained models and score it.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run evaluate "$here/recipe.yaml" "$@"
