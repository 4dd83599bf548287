#!/usr/bin/env bash
# Train translation models on Multi30k de-en, prepared by prepare.sh.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ARCHS="cas_lstm_iwslt"
SEEDS="1"
SETTINGS=(
    # model
    --dropout 0.3
    # loss and optimiser: the learning rate falls to almost zero in 10 epochs of 505 updates
    --criterion fused_label_smoothed_cross_entropy --label-smoothing 0.1
    --optimizer torch_adam --lr 4e-3 --clip-norm 1.0
    --lr-scheduler polynomial_decay --warmup-updates 200
    --total-num-update 5060 --max-update 5060 --max-epoch 10
    --max-tokens 1000 --num-workers 0
    # checkpoints: the best, and the last ones for averaging
    --keep-last-epochs 3 --log-interval 50
)

# From 1 to almost 0 in ten epochs, for evaluation routes hard.
ROUTING=(--temperature-decay 0.3 --temperature-floor 1e-4)

source "$RECIPE/../translation.sh"
train_main "$@"
