#!/usr/bin/env bash
# Perplexity of language models trained by train_carried.sh, over the continuous text.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
DEFAULT_OUT="$RECIPE/out/carried"
AVERAGE="ema"

source "$RECIPE/../language_model.sh"
lm_evaluate_main "$@"
