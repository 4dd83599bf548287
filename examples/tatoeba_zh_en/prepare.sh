#!/usr/bin/env bash
# Tatoeba zh-en: tab-separated pairs -> Chinese characters, English words, binarised for fairseq.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run prepare "$here/recipe.yaml" "$@"
