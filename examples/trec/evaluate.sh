#!/usr/bin/env bash
# Classify the test set of TREC questions with trained models.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run evaluate "$here/recipe.yaml" "$@"
