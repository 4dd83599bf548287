#!/usr/bin/env bash
# CoNLL-2003: raw files -> words, characters, tags, binarised for fairseq.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run prepare "$here/recipe.yaml" "$@"
