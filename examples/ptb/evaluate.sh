#!/usr/bin/env bash
# Perplexity of language models trained by train.sh, sentence by sentence.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
AVERAGE="ema"
EVALUATION=(--sentence-reset)

source "$RECIPE/../language_model.sh"
lm_evaluate_main "$@"
