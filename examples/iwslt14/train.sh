#!/usr/bin/env bash
# Train translation models on IWSLT14 de-en, prepared by prepare.sh.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run train "$here/recipe.yaml" "$@"
