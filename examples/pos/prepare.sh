#!/usr/bin/env bash
# a Universal Dependencies treebank: raw files -> words, characters, tags, binarised for fairseq.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run prepare "$here/recipe.yaml" "$@"
