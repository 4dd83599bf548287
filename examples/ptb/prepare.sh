#!/usr/bin/env bash
# Penn Treebank: Mikolov's text, checked and binarised for fairseq.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run prepare "$here/recipe.yaml" "$@"
