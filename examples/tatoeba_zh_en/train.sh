#!/usr/bin/env bash
# Train 50-d translation models of depth 3, 5 and 10 on Tatoeba zh-en, prepared by prepare.sh.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ARCHS="$(echo {stacked_gru,stacked_lstm,dg_lstm}_btec_{3,5,10})"
SEEDS="1"
SETTINGS=(
    # model
    --dropout 0.1
    # loss and optimiser
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1
    --optimizer adam --adam-betas "(0.9, 0.98)" --lr 5e-3 --clip-norm 1.0
    --lr-scheduler inverse_sqrt --warmup-updates 500 --warmup-init-lr 1e-7
    # models this narrow learn little in the few updates that large batches leave
    --max-tokens 500 --max-epoch 30
    # checkpoints: the best, and the last ones for averaging
    --keep-last-epochs 5 --log-interval 50
)

source "$RECIPE/../translation.sh"
train_main "$@"
