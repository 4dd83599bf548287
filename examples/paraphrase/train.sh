#!/usr/bin/env bash
# Train sentence encoders on Quora or MRPC, prepared by prepare.sh.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
SYSTEMS="bicas2"
SEEDS="1"
SETTINGS=(
    # CAS-LSTM paper: MLP 1024 with batch normalisation, dropout .1, rate halved on a plateau
    --optimizer torch_adam --lr 1e-3 --lr-scheduler reduce_lr_on_plateau --lr-shrink 0.5 --lr-patience 1
    --batch-size 128 --clip-norm 5 --dropout 0.1 --encoder-dropout-out 0
    --mlp-layers 2 --mlp-size 1024 --mlp-batch-norm
    # early stopping on validation accuracy
    --max-epoch 30 --patience 5
)
FEATURES="paraphrase"
source "$RECIPE/../classification.sh"
train_main "$@"
