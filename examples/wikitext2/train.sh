#!/usr/bin/env bash
# Train language models on WikiText-2, prepared by prepare.sh, the state carried along.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ARCHS="second_order_lstm_lm_wikitext2"
SEEDS="1"
TINY_ARCH="second_order_lstm_lm_tiny"
SETTINGS=(
    # --num-cells 1, 2 (default) or 5 after --
    --batch-size 64 --bptt 70 --dropout 0.5 --clip-norm 1.0 --no-epoch-checkpoints --log-interval 100
)
source "$RECIPE/../language_model.sh"

if [ -n "${EPOCHS:-}" ]; then
    check_number EPOCHS "$EPOCHS"
    # For a machine without a GPU: a few epochs of 933 updates, twice the paper's, at a rate that
    # falls to zero, and an adaptive softmax, with a fifth of the arithmetic of a full one.
    SETTINGS+=(
        --bptt 35 --criterion adaptive_loss --adaptive-softmax-cutoff 4000,12000 --ddp-backend legacy_ddp
        --optimizer torch_adam --lr 2e-3 --lr-scheduler polynomial_decay
        --total-num-update $((933 * EPOCHS)) --max-epoch "$EPOCHS"
    )
else
    SETTINGS+=(  # the second-order LSTM paper's
        --criterion fused_cross_entropy --optimizer adam --lr 1e-4
        --lr-scheduler reduce_lr_on_plateau --lr-shrink 0.5 --lr-patience 3 --patience 6
        --max-epoch 200
    )
fi
train_main "$@"
