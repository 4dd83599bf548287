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
    --max-epoch 200 --keep-last-epochs 1 --log-interval 100
)
USAGE_NOTE="
EPOCHS (an environment variable) asks for a short training of that many epochs, for a machine without
a GPU, in place of the paper's; the settings of both stand at the top of train.sh."

ROUTING=(--temperature-decay 0.9)
source "$RECIPE/../language_model.sh"
if [ -n "${EPOCHS:-}" ]; then
    check_number EPOCHS "$EPOCHS"
    SETTINGS=(
        # gradients over half as many steps, hence 933 updates an epoch; a rate that falls to zero over
        # them (another --batch-size or --bptt wants another --total-num-update); and an adaptive
        # softmax, with a fifth of the arithmetic of a full one
        --batch-size 64 --bptt 35 --dropout 0.5
        --criterion adaptive_loss --adaptive-softmax-cutoff 4000,12000 --ddp-backend legacy_ddp
        --optimizer torch_adam --lr 2e-3 --clip-norm 1.0
        --lr-scheduler polynomial_decay --total-num-update $((933 * EPOCHS))
        --max-epoch "$EPOCHS" --keep-last-epochs 1 --log-interval 100
    )
    # A temperature that is almost 0 in the last epoch, for evaluation routes hard: 0.25 for seven.
    decay="$(awk -v n="$EPOCHS" 'BEGIN { printf "%.2g", exp(log(2.5e-4) / (n > 1 ? n - 1 : 1)) }')"
    ROUTING=(--temperature-decay "$decay" --temperature-floor 1e-4)
fi
train_main "$@"
