#!/usr/bin/env bash
# Tag the test set of a Universal Dependencies treebank with trained models.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run evaluate "$here/recipe.yaml" "$@"
