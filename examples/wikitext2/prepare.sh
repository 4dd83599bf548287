#!/usr/bin/env bash
# WikiText-2, word level: checked and binarised for fairseq.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run prepare "$here/recipe.yaml" "$@"
