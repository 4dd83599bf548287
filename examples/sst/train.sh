#!/usr/bin/env bash
# Train sentence encoders on the Stanford Sentiment Treebank, prepared by prepare.sh.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
SYSTEMS="bicas2"
SEEDS="1"
SETTINGS=(
    # CAS-LSTM paper: MLP 300, dropout .5
    --optimizer torch_adam --lr 1e-3 --lr-scheduler reduce_lr_on_plateau --lr-shrink 0.5 --lr-patience 1
    --batch-size 64 --clip-norm 5 --dropout 0.5 --encoder-dropout-out 0.2 --mlp-layers 1 --mlp-size 300
    # without pretrained vectors: embeddings that start as wide, <unk> trained (found on TREC)
    --encoder-embed-range 1 --forget-singletons 0.5
    # early stopping on validation accuracy (an epoch is all phrases); the papers' 50 epochs at most
    --max-epoch 50 --patience 2
)

source "$RECIPE/../classification.sh"
train_main "$@"
