#!/usr/bin/env bash
# Movie reviews: raw files -> words, classes, binarised for fairseq.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run prepare "$here/recipe.yaml" "$@"
