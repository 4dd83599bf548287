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
    # model: 2 layers of 200; tied embeddings, and dropout of AWD-LSTM's kinds (Merity et al. 2018)
    --criterion fused_cross_entropy --share-decoder-input-output-embed --locked-dropout
    --decoder-dropout-in 0.2 --decoder-dropout-between 0.2 --decoder-dropout-out 0.3
    --weight-dropout 0.3 --embed-dropout 0.1
    # SGD; the loss is a mean over tokens, so a rate of 20 is what others call 0.6 at 35 time steps
    --optimizer sgd --lr 20 --clip-norm 0.25 --weight-decay 1.2e-6 --lr-scheduler fixed
    # at that rate to the end, and after 25 epochs averaged over about the last eight
    --store-ema --ema-decay 0.9999 --ema-start-update 33201
    --max-epoch 120 --keep-last-epochs 5 --log-interval 200
)

# From 1 to almost 0 well within 120 epochs, for evaluation routes hard.
ROUTING=(--temperature-decay 0.8 --temperature-floor 1e-4)

source "$RECIPE/../language_model.sh"
train_main "$@"
