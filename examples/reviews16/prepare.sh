#!/usr/bin/env bash
# one of the 16 review sets: raw files -> words, classes, binarised for fairseq.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run prepare "$here/recipe.yaml" "$@"
