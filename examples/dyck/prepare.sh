#!/usr/bin/env bash
# Generate Dyck languages of bounded depth and binarise them for fairseq.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run prepare "$here/recipe.yaml" "$@"
