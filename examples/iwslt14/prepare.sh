#!/usr/bin/env bash
# IWSLT14 de-en: official archive -> tokenised, cleaned, lower-cased, joint BPE, binarised.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$RECIPE/../translation.sh"

usage() {
    cat <<END
usage: prepare.sh [--archive FILE] [--out DIR] [--bpe-operations N] [--workers N] [--force]

  --archive FILE       de-en.tgz of IWSLT 2014; without it, the archive is downloaded from
                       http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz
  --out DIR            folder to fill (default: $RECIPE/data)
  --bpe-operations N   merges of the joint byte-pair encoding (default: 10000)
  --workers N          processes that tokenise (default: 1)
  --force              prepare again even if DIR is finished
END
}

prepare_main fairseq_casrnn.data.iwslt14 "$@"
