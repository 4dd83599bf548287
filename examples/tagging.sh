# What the scripts of the tagging recipes share; to be sourced, not run.
#
# A script sets RECIPE (its folder) and what it needs of SYSTEMS, SEEDS, SETTINGS (options of
# fairseq-train), UNROUTED (more of them, for all but second-order LSTMs) and METRIC, and calls
# prepare_main, train_main or evaluate_main.
# Runs lie in OUT/SYSTEM/seedN.

HIDDEN="${HIDDEN:-100}"
source "$(dirname "${BASH_SOURCE[0]}")/classification.sh"

TINY_ARCH="cas_lstm_tagger_tiny"
EVALUATOR="fairseq_casrnn.evaluation.tag_runs"
PRINTS="F1 of spans by type, or accuracy where tags mark no spans"
TRAINING=(--task sequence_tagging --criterion sequence_tagging)

# The sizes are those of Lample et al. (2016); the sentence-state LSTM's paper has 300.
# system NAME: sets OPTIONS to the architecture and sizes of a system. A name that is none of them is
# taken as an architecture.
system() {
    local hidden=(--encoder-hidden-size "$HIDDEN")
    local both=("${hidden[@]}" --encoder-bidirectional --encoder-layers)
    local stack=("${hidden[@]}" --encoder-interleaved --encoder-layers)
    local two="$HIDDEN,$HIDDEN"
    case "$1" in
        lstm) OPTIONS=(stacked_lstm "${hidden[@]}") ;;
        bilstm) OPTIONS=(stacked_lstm "${both[@]}" 1) ;;
        bilstm2) OPTIONS=(stacked_lstm "${stack[@]}" 2) ;;
        bilstm2_apart) OPTIONS=(stacked_lstm "${both[@]}" 2) ;;
        bigru2) OPTIONS=(stacked_gru "${stack[@]}" 2) ;;
        bicas2) OPTIONS=(cas_lstm "${both[@]}" 2) ;;
        bihighway2) OPTIONS=(highway_lstm "${both[@]}" 2) ;;
        bidg2) OPTIONS=(dg_lstm "${both[@]}" 2) ;;
        bisecond2) OPTIONS=(second_order_lstm "${both[@]}" 2 --num-cells 2
            --temperature-decay 0.73 --temperature-floor 1e-4) ;;
        shortcut) OPTIONS=(shortcut_lstm --hidden-sizes "$two") ;;
        residual) OPTIONS=(shortcut_lstm --hidden-sizes "$two" --connection residual) ;;
        slstm) OPTIONS=(sentence_state_lstm "${hidden[@]}" --num-steps "${STEPS:-9}") ;;
        *_tagger*) OPTIONS=("$1"); return ;;
        *) fail "unknown system $1; see --help" ;;
    esac
    OPTIONS[0]="${OPTIONS[0]}_tagger"
}

train_usage() {
    cat <<END
usage: train.sh [options] [-- options of fairseq-train]

  --arch NAME[,NAME…]  systems to train (default: $ARCHS): lstm bilstm bilstm2 bilstm2_apart bigru2
                       bicas2 bihighway2 bidg2 bisecond2 shortcut residual slstm, or an architecture
                       ending in _tagger
  --seed N[,N…]        seeds (default: $SEEDS)
  --seeds N            seeds 1 to N
  --data DIR           folder that prepare.sh filled (default: $RECIPE/data)
  --out DIR            runs go to DIR/NAME/seedN (default: $DEFAULT_OUT)
  --tiny               one epoch of cas_lstm_tagger_tiny, to see that everything works

bilstm2 joins the directions after the first layer, as torch.nn.LSTM does; bilstm2_apart at the top,
as the CAS-, highway and depth-gated stacks do. All end in a CRF; -- --tagger-output softmax trains
without. The systems' sizes stand in examples/tagging.sh, with HIDDEN ($HIDDEN, an environment variable)
units; the settings at the top of train.sh, and options after -- override both. An interrupted run
continues when it is called again, one that has finished is left as it is; a run with other options
or data needs another --out.
END
}
