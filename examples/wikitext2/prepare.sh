#!/usr/bin/env bash
# WikiText-2, word level: checked and binarised for fairseq.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$RECIPE/../language_model.sh"

usage() {
    cat <<END
usage: prepare.sh --raw DIR [--out DIR] [--any-size] [--force]

  --raw DIR    folder with wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens (of
               wikitext-2-v1.zip; train.txt, … do, too)
  --out DIR    folder to fill (default: $RECIPE/data)
  --any-size   take files of other than the known numbers of lines, tokens and types
  --force      prepare again even if DIR is finished
END
}

prepare_main fairseq_casrnn.data.monolingual wikitext2 "$@"
