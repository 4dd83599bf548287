#!/usr/bin/env bash
# TREC questions: raw files -> words, classes, binarised for fairseq.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$RECIPE/../classification.sh"

usage() {
    exec "$PYTHON" -m fairseq_casrnn.data.trec --help | sed "s/^usage: [^[]*/usage: prepare.sh /"
}

prepare_main fairseq_casrnn.data.trec "$@"
