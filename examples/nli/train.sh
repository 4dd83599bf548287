#!/usr/bin/env bash
# Train sentence encoders on SNLI or MultiNLI, prepared by prepare.sh.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
SYSTEMS="bicas2"
SEEDS="1"
if [ "${PAPER:-cas}" = shortcut ]; then
    SETTINGS=(
        # Nie and Bansal: rate halved every two epochs, batch 32, MLP 2 x 1600 with dropout .1
        --optimizer torch_adam --lr-scheduler fixed
        --lr 2e-4,2e-4,1e-4,1e-4,5e-5,5e-5,2.5e-5,2.5e-5,1.25e-5,1.25e-5,6.25e-6
        --batch-size 32 --dropout 0 --mlp-dropout 0.1 --mlp-dropout-in 0 --mlp-layers 2 --mlp-size 1600
        # early stopping on validation accuracy
        --max-epoch 30 --patience 5
    )
else
    SETTINGS=(
        # CAS-LSTM paper: MLP 1024 with batch normalisation, dropout .1, rate halved on a plateau
        --optimizer torch_adam --lr 1e-3 --lr-scheduler reduce_lr_on_plateau --lr-shrink 0.5 --lr-patience 1
        --batch-size 128 --clip-norm 5 --dropout 0.1 --encoder-dropout-out 0
        --mlp-layers 2 --mlp-size 1024 --mlp-batch-norm
        # early stopping on validation accuracy
        --max-epoch 30 --patience 5
    )
fi

source "$RECIPE/../classification.sh"
train_main "$@"
