#!/usr/bin/env bash
# Train language models on the Penn Treebank, prepared by prepare.sh.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ARCHS="dg_lstm_lm_ptb"
SEEDS="1"
TINY_ARCH="dg_lstm_lm_tiny"
SETTINGS=(
    # each sentence from an all-zero state, as the depth-gated LSTM paper has it
    --sentence-reset --batch-size 20
    # model: 2 layers of 200; embeddings and dropout as small models need them
    --criterion fused_cross_entropy --share-decoder-input-output-embed --dropout 0.25
    # SGD; the loss is a mean over tokens, so a rate of 20 is what others call 1 at 20 time steps
    --optimizer sgd --lr 20 --clip-norm 0.25
    --lr-scheduler reduce_lr_on_plateau --lr-shrink 0.5 --stop-min-lr 0.1
    --max-epoch 40 --keep-last-epochs 5 --log-interval 200
)

# From 1 to almost 0 well within 40 epochs, for evaluation routes hard.
ROUTING=(--temperature-decay 0.8 --temperature-floor 1e-4)

source "$RECIPE/../language_model.sh"
train_main "$@"
