#!/usr/bin/env bash
# Ablation of the CAS-LSTM paper (Table 6), on SICK: how the lower layer's cell is let in.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
SEEDS="1"
FOLDER="lambda"
ABOUT="Bidirectional CAS-LSTM, 2 layers, with lambda .25, .5, .75, trainable and none, beside a plain LSTM
and a highway LSTM."

source "$RECIPE/../classification.sh"
VARIANTS=(
    "lstm bilstm2_apart"
    "lambda-0.25 bicas2 --lam 0.25"
    "lambda-0.5 bicas2"
    "lambda-0.75 bicas2 --lam 0.75"
    "lambda-none bicas2 --lam none"
    "lambda-trainable bicas2 --lam trainable"
    "highway bihighway2"
)
variants_main "$@"
