#!/usr/bin/env bash
# Train language models on the Penn Treebank as one continuous text, the state carried along.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
DEFAULT_OUT="$RECIPE/out/carried"
ARCHS="dg_lstm_lm_ptb"
SEEDS="1"
TINY_ARCH="dg_lstm_lm_tiny"
SETTINGS=(
    --batch-size 20 --bptt 35 --bptt-jitter 5
    --criterion fused_cross_entropy --share-decoder-input-output-embed --dropout 0.3
    --optimizer sgd --lr 20 --clip-norm 0.25
    --lr-scheduler reduce_lr_on_plateau --lr-shrink 0.5 --stop-min-lr 0.1
    --max-epoch 60 --keep-last-epochs 5 --log-interval 200
)

# From 1 to almost 0 well within these epochs, for evaluation routes hard.
ROUTING=(--temperature-decay 0.8 --temperature-floor 1e-4)

source "$RECIPE/../language_model.sh"
train_main "$@"
