#!/usr/bin/env bash
# Train sentence encoders on one of the 16 review sets, prepared by prepare.sh.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run train "$here/recipe.yaml" "$@"
