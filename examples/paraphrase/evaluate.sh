#!/usr/bin/env bash
# Classify the test set of Quora or MRPC with trained models.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

source "$RECIPE/../classification.sh"
evaluate_main "$@"
