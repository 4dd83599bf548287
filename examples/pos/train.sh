#!/usr/bin/env bash
# Train taggers on a Universal Dependencies treebank, prepared by prepare.sh.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run train "$here/recipe.yaml" "$@"
