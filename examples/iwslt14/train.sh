#!/usr/bin/env bash
# Train translation models on IWSLT14 de-en, prepared by prepare.sh.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
ARCHS="stacked_lstm_iwslt cas_lstm_iwslt cas_lstm_iwslt_247"
SEEDS="1"
SETTINGS=(
    # model
    --dropout 0.3
    # loss and optimiser
    --criterion fused_label_smoothed_cross_entropy --label-smoothing 0.1
    --optimizer torch_adam --adam-betas "(0.9, 0.98)" --lr 1e-3 --clip-norm 1.0
    --lr-scheduler inverse_sqrt --warmup-updates 4000 --warmup-init-lr 1e-7
    --max-tokens 4000 --max-epoch 30
    # checkpoints: the best, and the last ones for averaging
    --keep-last-epochs 5 --log-interval 100
)

# From 1 to almost 0 well within 30 epochs, for evaluation routes hard.
ROUTING=(--temperature-decay 0.7 --temperature-floor 1e-4)

source "$RECIPE/../translation.sh"
train_main "$@"
