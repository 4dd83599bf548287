#!/usr/bin/env bash
# Multi30k de-en: raw captions -> tokenised, lower-cased, joint BPE, binarised for fairseq.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$RECIPE/../translation.sh"

usage() {
    cat <<END
usage: prepare.sh --raw DIR [--out DIR] [--bpe-operations N] [--workers N] [--force]

  --raw DIR            folder with train, val and test_2016_flickr in German and English, e.g.
                       train.raw.de.gz or train.de (https://github.com/multi30k/dataset,
                       data/task1/raw)
  --out DIR            folder to fill (default: $RECIPE/data)
  --bpe-operations N   merges of the joint byte-pair encoding (default: 10000)
  --workers N          processes that tokenise (default: 1)
  --force              prepare again even if DIR is finished
END
}

prepare_main fairseq_casrnn.data.multi30k "$@"
