#!/usr/bin/env bash
# Train language models on the Penn Treebank as the depth-gated LSTM paper does: no dropout, separate
# embeddings. Its SGD has a rate of .1 for the sum over a sentence, about 2 here; ours is larger.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
DEFAULT_OUT="$RECIPE/out/paper"
ARCHS="dg_lstm_lm_ptb"
SEEDS="1"
TINY_ARCH="dg_lstm_lm_tiny"
SETTINGS=(
    # each sentence from an all-zero state; separate embeddings, no dropout
    --sentence-reset --batch-size 20
    # SGD, halved when validation stalls; the loss is a mean over tokens (see train.sh)
    --criterion fused_cross_entropy --optimizer sgd --lr 20 --clip-norm 0.25
    --lr-scheduler reduce_lr_on_plateau --lr-shrink 0.5 --stop-min-lr 0.1
    --max-epoch 40 --patience 4 --keep-last-epochs 5 --log-interval 200
)

# From 1 to almost 0 well within these epochs, for evaluation routes hard.
ROUTING=(--temperature-decay 0.8 --temperature-floor 1e-4)

source "$RECIPE/../language_model.sh"
train_main "$@"
