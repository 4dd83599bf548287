#!/usr/bin/env bash
# Train taggers on CoNLL-2003, prepared by prepare.sh.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
SYSTEMS="slstm"
SEEDS="1"
METRIC="f1"
SETTINGS=(
    # Adam, rate halved on a plateau; dropout on embeddings and on the states that tags are read from
    --optimizer torch_adam --lr 1e-3 --lr-scheduler reduce_lr_on_plateau --lr-shrink 0.5 --lr-patience 1
    --batch-size 16 --clip-norm 5 --dropout 0.5 --encoder-dropout-out 0.3 --tagger-dropout 0.5
    # words and their spelling; without pretrained vectors <unk> is trained on words that occur once
    --encoder-embed-dim 100 --encoder-embed-range 1 --char-filters 50 --forget-singletons 0.5
    --max-epoch 30
)
# Early stopping on validation; not while hard routing makes that worse than training, see ../dyck.
UNROUTED=(--patience 5)

source "$RECIPE/../tagging.sh"
train_main "$@"
