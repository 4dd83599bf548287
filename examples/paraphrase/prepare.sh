#!/usr/bin/env bash
# Quora or MRPC: raw files -> words, classes, binarised for fairseq.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run prepare "$here/recipe.yaml" "$@"
