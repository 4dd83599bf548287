#!/usr/bin/env bash
# Train 50-d translation models of depth 3, 5 and 10 on Tatoeba zh-en, prepared by prepare.sh.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ARCHS="$(echo {stacked_gru,stacked_lstm,dg_lstm}_btec_{3,5,10})"
SEEDS="1"
SETTINGS=(
    # model
    --dropout 0.1
    # loss and optimiser: the learning rate falls to zero in 15 epochs of 473 updates
    --criterion fused_label_smoothed_cross_entropy --label-smoothing 0.1
    --optimizer torch_adam --lr 5e-3 --clip-norm 1.0
    --lr-scheduler polynomial_decay --warmup-updates 500
    --total-num-update 7095 --max-update 7095 --max-epoch 15
    # models this narrow learn little in the few updates that large batches leave
    --max-tokens 500
    # checkpoints: the best, and the last ones for averaging
    --keep-last-epochs 5 --log-interval 50
)

source "$RECIPE/../translation.sh"
train_main "$@"
