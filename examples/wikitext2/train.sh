#!/usr/bin/env bash
# Train language models on WikiText-2, prepared by prepare.sh, the state carried along.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ARCHS="second_order_lstm_lm_wikitext2"
SEEDS="1"
TINY_ARCH="second_order_lstm_lm_tiny"
SETTINGS=(
    # the second-order LSTM paper's; --num-cells 1, 2 (default) or 5 after --
    --batch-size 64 --bptt 70 --dropout 0.5
    --criterion fused_cross_entropy --optimizer adam --lr 1e-4 --clip-norm 1.0
    --lr-scheduler reduce_lr_on_plateau --lr-shrink 0.5 --lr-patience 3 --patience 6
    --max-epoch 200 --no-epoch-checkpoints --log-interval 100
)

source "$RECIPE/../language_model.sh"
train_main "$@"
