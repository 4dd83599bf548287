#!/usr/bin/env bash
# Tag the test set of CoNLL-2003 with trained models.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

source "$RECIPE/../tagging.sh"
evaluate_main "$@"
