#!/usr/bin/env bash
# Train language models on the Dyck languages that prepare.sh generated.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run train "$here/recipe.yaml" "$@"
