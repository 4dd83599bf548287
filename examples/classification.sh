# What the scripts of the classification recipes share; to be sourced, not run.
#
# A script sets RECIPE (its folder) and what it needs of SYSTEMS, SEEDS, SETTINGS (options of
# fairseq-train), ROUTING and UNROUTED (as in translation.sh) and FEATURES, and calls prepare_main,
# train_main or evaluate_main.
# Runs lie in OUT/SYSTEM/seedN. tagging.sh has its own systems and all else from here.

source "$(dirname "${BASH_SOURCE[0]}")/translation.sh"

ARCHS="${SYSTEMS:-}"
TINY_ARCH="cas_lstm_sentence_encoder_tiny"
AVERAGE="best"
SUBSET="test"
HIDDEN="${HIDDEN:-300}"
EVALUATOR="fairseq_casrnn.evaluation.classify"
PRINTS="the confusion matrix, accuracy and macro-F1 of the split"
TRAINING=(--task sentence_classification --criterion sentence_classification)
METRIC="${METRIC:-accuracy}"

# system NAME: sets OPTIONS to the architecture and sizes of a system that the papers compare. A
# name that is none of them is taken as an architecture.
system() {
    local hidden=(--encoder-hidden-size "$HIDDEN")
    local both=("${hidden[@]}" --encoder-bidirectional --encoder-layers)
    local stack=("${hidden[@]}" --encoder-interleaved --encoder-layers)
    local three="$HIDDEN,$HIDDEN,$HIDDEN"
    case "$1" in
        lstm) OPTIONS=(stacked_lstm "${hidden[@]}") ;;
        bilstm) OPTIONS=(stacked_lstm "${both[@]}" 1) ;;
        bilstm_att) OPTIONS=(stacked_lstm "${both[@]}" 1 --pooling attention) ;;
        bilstm2) OPTIONS=(stacked_lstm "${stack[@]}" 2) ;;
        bilstm3) OPTIONS=(stacked_lstm "${stack[@]}" 3) ;;
        bilstm2_apart) OPTIONS=(stacked_lstm "${both[@]}" 2) ;;
        cas2) OPTIONS=(cas_lstm "${hidden[@]}" --encoder-layers 2) ;;
        cas3) OPTIONS=(cas_lstm "${hidden[@]}" --encoder-layers 3) ;;
        bicas2) OPTIONS=(cas_lstm "${both[@]}" 2) ;;
        bicas3) OPTIONS=(cas_lstm "${both[@]}" 3) ;;
        bihighway2) OPTIONS=(highway_lstm "${both[@]}" 2) ;;
        bidg2) OPTIONS=(dg_lstm "${both[@]}" 2) ;;
        shortcut) OPTIONS=(shortcut_lstm --hidden-sizes "$three") ;;
        residual) OPTIONS=(shortcut_lstm --hidden-sizes "$three" --connection residual) ;;
        slstm) OPTIONS=(sentence_state_lstm "${hidden[@]}" --num-steps 9) ;;
        slstm_att) OPTIONS=(sentence_state_lstm "${hidden[@]}" --num-steps 9 --pooling attention) ;;
        cnn) OPTIONS=(cnn) ;;
        transformer) OPTIONS=(transformer) ;;
        *_sentence_encoder*) OPTIONS=("$1"); return ;;
        *) fail "unknown system $1; see --help" ;;
    esac
    OPTIONS[0]="${OPTIONS[0]}_sentence_encoder"
}

train_usage() {
    cat <<END
usage: train.sh [options] [-- options of fairseq-train]

  --arch NAME[,NAME…]  systems to train (default: $ARCHS): lstm bilstm bilstm_att bilstm2 bilstm3
                       bilstm2_apart cas2 cas3 bicas2 bicas3 bihighway2 bidg2 shortcut residual slstm slstm_att
                       cnn transformer, or an architecture ending in _sentence_encoder
  --seed N[,N…]        seeds (default: $SEEDS)
  --seeds N            seeds 1 to N
  --data DIR           folder that prepare.sh filled (default: $RECIPE/data)
  --out DIR            runs go to DIR/NAME/seedN (default: $DEFAULT_OUT)
  --tiny               one epoch of cas_lstm_sentence_encoder_tiny, to see that everything works

bilstm2 and bilstm3 join the directions after every layer, as torch.nn.LSTM does; bilstm2_apart at
the top, as the CAS-, highway and depth-gated stacks do. Pooling is by maximum (S-LSTM: its sentence
node). The systems' sizes are those of the papers with HIDDEN ($HIDDEN, an environment variable) units; they
stand in examples/classification.sh, the settings at the top of train.sh, and options after --
override both. An interrupted run continues when it is called again, one that has finished is left
as it is; a run with other options or data needs another --out.
END
}

evaluate_usage() {
    cat <<END
usage: evaluate.sh [options]

  --arch NAME[,NAME…]  systems (default: all in --out)
  --seed N[,N…]        seeds (default: all in --out)
  --seeds N            seeds 1 to N
  --data DIR           folder that prepare.sh filled (default: $RECIPE/data)
  --out DIR            folder of the runs (default: $DEFAULT_OUT)
  --checkpoint WHICH   best, last, an average of N: last:N, best:N, or that of a training
                       with --store-ema: ema (default: best)
  --baseline NAME      system the others are compared with: a paired t-test over seeds, and of
                       classifiers McNemar's test for each
  --subset NAME        split to evaluate on (default: test)

Prints $PRINTS, keeps them and every prediction
in the run's folder, appends one JSON line a run to DIR/results.jsonl and ends with mean ± deviation.
END
}

check_arch() {
    system "$1"
}

# train_one NAME SEED RUN
train_one() {
    system "$1"
    own_options "${OPTIONS[0]}"
    fairseq_train "$@" "${TRAINING[@]}" \
        --best-checkpoint-metric "$METRIC" --maximize-best-checkpoint-metric \
        --keep-last-epochs 1 --log-interval 100 --required-batch-size-multiple 1 --num-workers 0 \
        --arch "${OPTIONS[@]}" ${OWN[@]+"${OWN[@]}"} ${FEATURES:+--features $FEATURES}
}

evaluate_main() {
    parse_options evaluate_usage \
        "--arch --seed --seeds --data --out --checkpoint --baseline --subset" "$@"
    check_trained_on
    "$PYTHON" -m "$EVALUATOR" --data "$DATA" --out "$OUT" \
        ${ARCH:+--arch $ARCH} ${SEED:+--seed $SEED} --checkpoint "$AVERAGE" --subset "$SUBSET" \
        ${BASELINE:+--baseline "$BASELINE"}
}

# parse_table_options USAGE OWN "$@": for scripts that prepare, train and evaluate several folders.
# Sets RAW, DATA, OUT, CHOSEN (the value of the option OWN, as words), PREPARE, TRAIN, EVALUATE and
# REST.
parse_table_options() {
    local usage="$1" own="$2"
    local of_prepare=" --vocabulary --tokenizer --min-count --valid-size --split-seed "
    shift 2
    RAW="" DATA="$RECIPE/data" OUT="$RECIPE/out" CHOSEN=""
    PREPARE=() TRAIN=() EVALUATE=() REST=()
    while [ $# -gt 0 ]; do
        case "$1" in
            -h | --help) "$usage"; exit 0 ;;
            --) REST=("$@"); break ;;
            --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}"; continue ;;
            --tiny) TRAIN+=(--tiny); shift; continue ;;
            --lowercase | --no-lowercase) PREPARE+=("$1"); shift; continue ;;
            --raw | --data | --out | --arch | --seed | --seeds | "$own") ;;
            *) [[ "$of_prepare" == *" $1 "* ]] || fail "unknown option $1; see --help" ;;
        esac
        [ $# -ge 2 ] || fail "$1 needs a value; see --help"
        case "$1" in
            --raw) RAW="$2" ;;
            --data) DATA="$2" ;;
            --out) OUT="$2" ;;
            "$own") CHOSEN="${2//,/ }" ;;
            --arch | --seed | --seeds) TRAIN+=("$1" "$2"); EVALUATE+=("$1" "$2") ;;
            *) PREPARE+=("$1" "$2") ;;
        esac
        shift 2
    done
    [ -n "$RAW" ] || fail "--raw is missing; see --help"
}

# train_and_evaluate NAME: in the folder NAME of DATA and of OUT.
train_and_evaluate() {
    local where=(--data "$DATA/$1" --out "$OUT/$1")
    "$RECIPE/train.sh" "${where[@]}" ${TRAIN[@]+"${TRAIN[@]}"} ${REST[@]+"${REST[@]}"}
    "$RECIPE/evaluate.sh" "${where[@]}" ${EVALUATE[@]+"${EVALUATE[@]}"}
}

show_table() {
    "$PYTHON" -m fairseq_casrnn.evaluation.set_table "$OUT"
}

variants_usage() {
    cat <<END
usage: $(basename "$0") [options] [-- options of fairseq-train]

  --variant NAME[,…]   of those below, only these (default: all)
  --seed N[,N…]        seeds (default: $SEEDS)
  --seeds N            seeds 1 to N
  --data DIR           folder that prepare.sh filled (default: $RECIPE/data)
  --out DIR            runs go to DIR/VARIANT/SYSTEM/seedN (default: $RECIPE/$FOLDER)
  --subset NAME        split whose accuracy is shown (default: $SUBSET)

$ABOUT
Variants: ${VARIANTS[*]%% *}.
Ends with a table of accuracy, training seconds and, in brackets, seconds of classifying. HIDDEN
($HIDDEN, an environment variable) is the hidden size.
END
}

# check_variants: those of VARIANT, names in words, are among VARIANTS.
check_variants() {
    local name known="${VARIANTS[*]%% *}"
    for name in $VARIANT; do
        [[ " $known " == *" $name "* ]] || fail "there is no variant $name; choose from $known"
    done
}

# variants_main "$@": for scripts that compare variants of systems. Trains and evaluates each of the
# array VARIANTS, "NAME SYSTEM [OPTION…]", in a folder of its own. FOLDER and ABOUT are for the usage.
variants_main() {
    local name system options line seeds=()
    parse_options variants_usage "--variant --seed --seeds --data --out --subset --" \
        --out "$RECIPE/$FOLDER" "$@"
    check_variants
    [ -f "$DATA/data-bin/label/$SUBSET.idx" ] ||
        fail "$DATA has no split '$SUBSET'; choose --subset from train, valid and test"
    [ -z "$SEED" ] || seeds=(--seed "${SEED// /,}")
    for line in "${VARIANTS[@]}"; do
        read -r name system options <<<"$line"
        [[ -z "$VARIANT" || " $VARIANT " == *" $name "* ]] || continue
        # shellcheck disable=SC2086  # options are words
        "$RECIPE/train.sh" --data "$DATA" --out "$OUT/$name" --arch "$system" \
            ${seeds[@]+"${seeds[@]}"} -- $options ${EXTRA[@]+"${EXTRA[@]}"}
        "$RECIPE/evaluate.sh" --data "$DATA" --out "$OUT/$name" ${seeds[@]+"${seeds[@]}"} \
            --subset "$SUBSET"
    done
    "$PYTHON" -m fairseq_casrnn.evaluation.set_table "$OUT" --subset "$SUBSET" --no-average
}
