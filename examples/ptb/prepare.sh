#!/usr/bin/env bash
# Penn Treebank: Mikolov's text, checked and binarised for fairseq.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$RECIPE/../language_model.sh"

usage() {
    cat <<END
usage: prepare.sh --raw DIR [--out DIR] [--any-size] [--force]

  --raw DIR    folder with ptb.train.txt, ptb.valid.txt and ptb.test.txt (Mikolov's text, in
               simple-examples/data of http://www.fit.vutbr.cz/~imikolov/rnnlm/)
  --out DIR    folder to fill (default: $RECIPE/data)
  --any-size   take files of other than the known numbers of lines, tokens and types
  --force      prepare again even if DIR is finished
END
}

prepare_main fairseq_casrnn.data.monolingual ptb "$@"
