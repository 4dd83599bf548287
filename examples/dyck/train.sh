#!/usr/bin/env bash
# Train language models on the Dyck languages that prepare.sh generated.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
SEEDS="1"
TINY_ARCH="second_order_lstm_lm_tiny"
SETTINGS=(
    # each string from an all-zero state
    --sentence-reset --batch-size 10 --criterion dyck_cross_entropy
    --no-epoch-checkpoints --log-interval 500
)
if [ "${PAPER:-}" = second_order ]; then
    ROUTING=(--temperature-decay 0.9)
    SETTINGS+=(
        --optimizer adam --lr 1e-4
        --lr-scheduler reduce_lr_on_plateau --lr-shrink 0.5 --lr-patience 3 --patience 6
        --max-epoch 200
    )
else
    # A hundred times the paper's rate, falling to zero over all epochs. No early stopping:
    # while the temperature is high, hard routing makes validation worse than training. It must
    # end far lower than 0.9 an epoch would have it: the scores shrink along with it for a while.
    # By then the attention has next to no gradient but for rare, long ones, of nearly equal scores.
    # Adam's step is the gradient over what it remembers, 1000 of them with 0.999: one that undoes
    # ten epochs. ε keeps steps small where nothing is remembered.
    # With 1e-3 not one bracket of m = 4 is wrong, but deeper languages are learnt too slowly, and
    # the LSTM takes half as long again.
    EPOCHS=(--max-epoch 40 --total-num-update 40000)
    ROUTING=(--temperature-decay 0.8 --temperature-floor 1e-4 "${EPOCHS[@]}")
    ROUTING_SHALLOW=(--adam-eps 1e-3) # for m up to 4
    UNROUTED=(--adam-eps 1e-4 "${EPOCHS[@]}")
    UNROUTED_SHALLOW=(--adam-eps 1e-3 --max-epoch 60 --total-num-update 60000)
    SETTINGS+=(
        --optimizer torch_adam --adam-betas '(0.9, 0.98)' --lr 1e-2 --clip-norm 0.1
        --lr-scheduler polynomial_decay
    )
fi

ARCHS="stacked_lstm_lm_dyck_M second_order_lstm_lm_dyck_M, M each of --m 4,6,8"
source "$RECIPE/../language_model.sh"
source "$RECIPE/common.sh"
dyck_options "$@"
for m in $DEPTHS; do
    case " ${REST[*]-} " in *" -h "* | *" --help "*) train_usage; exit 0 ;; esac
    (
        ARCHS="stacked_lstm_lm_dyck_$m second_order_lstm_lm_dyck_$m"
        if [ "$m" -le 4 ]; then
            ROUTING+=(${ROUTING_SHALLOW[@]+"${ROUTING_SHALLOW[@]}"})
            UNROUTED=(${UNROUTED_SHALLOW[@]+"${UNROUTED_SHALLOW[@]}"})
        fi
        PREPARE_WITH="prepare.sh --m $m --out $BASE_DATA"
        train_main --data "$BASE_DATA/m$m" --out "$BASE_OUT/m$m" ${REST[@]+"${REST[@]}"}
    )
done
