#!/usr/bin/env bash
# Train sentence encoders on TREC questions, prepared by prepare.sh.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run train "$here/recipe.yaml" "$@"
