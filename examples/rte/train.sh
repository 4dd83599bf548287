#!/usr/bin/env bash
# Train sentence encoders on RTE, prepared by prepare.sh.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
SYSTEMS="bicas2"
SEEDS="1"
SETTINGS=(
    # as for NLI (CAS-LSTM paper), but smaller batches and more dropout; rate halved on a plateau
    --optimizer torch_adam --lr 1e-3 --lr-scheduler reduce_lr_on_plateau --lr-shrink 0.5 --lr-patience 1
    --batch-size 32 --clip-norm 5 --dropout 0.3 --encoder-dropout-out 0
    --mlp-layers 2 --mlp-size 1024 --mlp-batch-norm
    # early stopping on validation accuracy
    --max-epoch 30 --patience 8
)

source "$RECIPE/../classification.sh"
train_main "$@"
