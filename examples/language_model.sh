# What the scripts of the language model recipes share; to be sourced, not run.
#
# A script sets RECIPE (its folder) and what it needs of ARCHS, SEEDS, TINY_ARCH, SETTINGS (options
# of fairseq-train) and EVALUATION (options of the evaluation), and calls lm_prepare_main,
# lm_train_main or lm_evaluate_main. Runs lie in OUT/ARCH/seedN.

source "$(dirname "${BASH_SOURCE[0]}")/translation.sh"

lm_train_usage() {
    cat <<END
usage: train.sh [options] [-- options of fairseq-train]

  --arch NAME[,NAME…]  architectures (default: $ARCHS)
  --seed N[,N…]        seeds (default: $SEEDS)
  --seeds N            seeds 1 to N
  --data DIR           folder that prepare.sh filled (default: $RECIPE/data)
  --out DIR            runs go to DIR/ARCH/seedN (default: $RECIPE/out)
  --tiny               one epoch of $TINY_ARCH, to see that everything works

An interrupted run continues from its last checkpoint when it is called again. The settings stand
at the top of train.sh; options after -- override them. Trains on the GPU if there is one.
END
}

lm_evaluate_usage() {
    cat <<END
usage: evaluate.sh [options]

  --arch NAME[,NAME…]  architectures (default: all in --out)
  --seed N[,N…]        seeds (default: all in --out)
  --seeds N            seeds 1 to N
  --data DIR           folder that prepare.sh filled (default: $RECIPE/data)
  --out DIR            folder of the runs (default: $RECIPE/out)
  --checkpoint WHICH   best, last, or the average of N: last:N, best:N (default: $AVERAGE)

Prints validation and test perplexity, and appends one JSON line a run to DIR/results.jsonl.
END
}

lm_train_main() {
    parse_options lm_train_usage "--arch --seed --seeds --data --out --tiny" "$@"
    local arch seed run
    if [ -n "$TINY" ]; then
        ARCHS="$TINY_ARCH"
        SETTINGS+=(--max-epoch 1)
    fi
    for arch in ${ARCH:-$ARCHS}; do
        for seed in ${SEED:-$SEEDS}; do
            run="$OUT/$arch/seed$seed"
            mkdir -p "$run"
            echo "training $arch with seed $seed in $run"
            "$PYTHON" -m fairseq_cli.train "$DATA/data-bin" --user-dir "$REPO/fairseq_casrnn" \
                --task stateful_language_modeling --arch "$arch" --seed "$seed" \
                --save-dir "$run" --num-workers 0 --required-batch-size-multiple 1 \
                --no-progress-bar --log-format simple \
                "${SETTINGS[@]}" ${EXTRA[@]+"${EXTRA[@]}"} 2>&1 | tee -a "$run/train.log"
        done
    done
}

lm_evaluate_main() {
    parse_options lm_evaluate_usage "--arch --seed --seeds --data --out --checkpoint" "$@"
    "$PYTHON" -m fairseq_casrnn.evaluation.evaluate_lm --data "$DATA" --out "$OUT" \
        ${ARCH:+--arch $ARCH} ${SEED:+--seed $SEED} --checkpoint "$AVERAGE" \
        ${EVALUATION[@]+"${EVALUATION[@]}"}
}

# lm_prepare_main CORPUS "$@"
lm_prepare_main() {
    local option out=(--out "$RECIPE/data")
    for option in "$@"; do
        case "$option" in
            -h | --help) usage; exit 0 ;;
            --out | --out=*) out=() ;;
        esac
    done
    exec "$PYTHON" -m fairseq_casrnn.data.monolingual ${out[@]+"${out[@]}"} "$@"
}
