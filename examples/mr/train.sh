#!/usr/bin/env bash
# Train sentence encoders on Movie reviews, prepared by prepare.sh.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
SYSTEMS="slstm"
SEEDS="1"
SETTINGS=(
    # S-LSTM paper, §4.1: Adam, rate times .97 after each epoch, batch 10, clip 3, dropout .5
    --optimizer adam --lr 1e-3 --lr-scheduler fixed --lr-shrink 0.97 --force-anneal 2
    --batch-size 10 --clip-norm 3 --l2 1e-3 --dropout 0.5 --encoder-dropout-out 0.2 --mlp-layers 0
    # early stopping on validation accuracy
    --max-epoch 30 --patience 5
)

source "$RECIPE/../classification.sh"
train_main "$@"
