#!/usr/bin/env bash
# Train language models on WikiText-2, prepared by prepare.sh, the state carried along.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run train "$here/recipe.yaml" "$@"
