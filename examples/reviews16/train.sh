#!/usr/bin/env bash
# Train sentence encoders on one of the 16 review sets, prepared by prepare.sh.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
SYSTEMS="slstm"
SEEDS="1"
SETTINGS=(
    # S-LSTM paper, §4.1: Adam, rate times .97 after each epoch, clip 3, dropout .5. Chosen on
    # validation (TREC): batches of 32 for its 10, no L2 for its 1e-3, embeddings that start wide
    # since they are not pretrained, and <unk> trained on words that occur once.
    --optimizer torch_adam --lr 1e-3 --lr-scheduler fixed --lr-shrink 0.97 --force-anneal 2
    # The longest reviews have 4,800 words: 16,000 in a batch keep the memory within bounds.
    --batch-size 32 --max-tokens 16000 --clip-norm 3
    --dropout 0.5 --encoder-dropout-out 0.2 --mlp-layers 0
    --encoder-embed-range 1 --forget-singletons 0.5
    # early stopping on validation accuracy
    --max-epoch 30 --patience 5
)

source "$RECIPE/../classification.sh"
train_main "$@"
