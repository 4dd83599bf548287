#!/usr/bin/env bash
# Train 50-d translation models of depth 3, 5 and 10 on Tatoeba zh-en, prepared by prepare.sh.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run train "$here/recipe.yaml" "$@"
