# What the scripts of the language model recipes share; to be sourced, not run.
#
# A script sets RECIPE (its folder) and what it needs of ARCHS, SEEDS, TINY_ARCH, SETTINGS (options
# of fairseq-train) and EVALUATION (options of the evaluation), and calls prepare_main, train_main
# or lm_evaluate_main. Runs lie in OUT/ARCH/seedN.

source "$(dirname "${BASH_SOURCE[0]}")/translation.sh"

TASK=(--task stateful_language_modeling --num-workers 0 --required-batch-size-multiple 1)

# check_arch NAME: fairseq has hundreds, and would refuse the settings instead of the name.
check_arch() {
    [[ "$1" == *_lm || "$1" == *_lm_* || "$1" == hf_gpt* ]] ||
        fail "--arch $1 is no language model; their names have _lm in them, such as those of --help"
}

lm_evaluate_usage() {
    cat <<END
usage: evaluate.sh [options]

  --arch NAME[,NAME…]  architectures (default: all in --out)
  --seed N[,N…]        seeds (default: all in --out)
  --seeds N            seeds 1 to N
  --data DIR           folder that prepare.sh filled (default: $RECIPE/data)
  --out DIR            folder of the runs (default: $DEFAULT_OUT)
  --checkpoint WHICH   best, last, an average of N: last:N, best:N, or that of a training
                       with --store-ema: ema (default: $AVERAGE)
  --cache N            of a continuous text: once more with a cache of the last N words

Prints validation and test perplexity, and appends one JSON line a run to DIR/results.jsonl.
END
}

lm_evaluate_main() {
    parse_options lm_evaluate_usage "--arch --seed --seeds --data --out --checkpoint --cache" "$@"
    check_trained_on
    "$PYTHON" -m fairseq_casrnn.evaluation.evaluate_lm --data "$DATA" --out "$OUT" \
        ${ARCH:+--arch $ARCH} ${SEED:+--seed $SEED} --checkpoint "$AVERAGE" ${CACHE:+--cache "$CACHE"} \
        ${EVALUATION[@]+"${EVALUATION[@]}"}
}
