#!/usr/bin/env bash
# Multi30k de-en: raw captions -> tokenised, lower-cased, joint BPE, binarised for fairseq.
set -euo pipefail

usage() {
    cat <<END
usage: prepare.sh --raw DIR [--out DIR] [--bpe-operations N] [--workers N] [--force]

  --raw DIR            folder with train, val and test_2016_flickr in German and English, e.g.
                       train.raw.de.gz or train.de (https://github.com/multi30k/dataset,
                       data/task1/raw)
  --out DIR            folder to fill (default: data/multi30k); fairseq-train reads DIR/data-bin
  --bpe-operations N   merges of the joint byte-pair encoding (default: 10000)
  --workers N          processes that tokenise (default: 1)
  --force              prepare again even if DIR is finished
END
}

case " $* " in *" --help "* | *" -h "*) usage; exit 0 ;; esac
case " $* " in *" --out "* | *" --out="*) ;; *) set -- --out data/multi30k "$@" ;; esac
repo="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
export PYTHONPATH="$repo${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python3}" -m fairseq_casrnn.data.multi30k "$@"
