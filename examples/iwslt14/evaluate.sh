#!/usr/bin/env bash
# Translate the IWSLT14 test set with trained models and score it.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
AVERAGE="last:5"

source "$RECIPE/../translation.sh"
evaluate_main "$@"
