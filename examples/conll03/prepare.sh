#!/usr/bin/env bash
# CoNLL-2003: raw files -> words, characters, tags, binarised for fairseq.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$RECIPE/../tagging.sh"

usage() {
    exec "$PYTHON" -m fairseq_casrnn.data.conll03 --help | sed "s/^usage: [^[]*/usage: prepare.sh /"
}

prepare_main fairseq_casrnn.data.conll03 "$@"
