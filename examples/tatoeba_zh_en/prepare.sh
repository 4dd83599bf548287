#!/usr/bin/env bash
# Tatoeba zh-en: tab-separated pairs -> Chinese characters, English words, binarised for fairseq.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$RECIPE/../translation.sh"

usage() {
    cat <<END
usage: prepare.sh --raw FILE [--out DIR] [options]

  --raw FILE           English<TAB>Chinese[<TAB>credit], e.g. cmn.txt of cmn-eng.zip from
                       https://www.manythings.org/anki/
  --out DIR            folder to fill (default: $RECIPE/data)
  --eval-size N        sentences in the validation set, and in the test set (default: 1000)
  --split-seed N       seed of the split (default: 1)
  --min-count N        rarer tokens of the training set become <unk> (default: 2)
  --bpe-operations N   merges of a joint byte-pair encoding (default: 0, whole words)
  --workers N          processes that tokenise (default: 1)
  --force              prepare again even if DIR is finished
END
}

prepare_main fairseq_casrnn.data.tatoeba "$@"
