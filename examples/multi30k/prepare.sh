#!/usr/bin/env bash
# Multi30k de-en: raw captions -> tokenised, lower-cased, joint BPE, binarised for fairseq.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run prepare "$here/recipe.yaml" "$@"
