#!/usr/bin/env bash
# Train language models on the Penn Treebank, prepared by prepare.sh.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run train "$here/recipe.yaml" "$@"
