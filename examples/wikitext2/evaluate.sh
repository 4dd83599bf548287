#!/usr/bin/env bash
# Perplexity of language models trained by train.sh on WikiText-2, over the continuous text.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
AVERAGE="best"

source "$RECIPE/../language_model.sh"
lm_evaluate_main "$@"
