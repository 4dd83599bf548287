#!/usr/bin/env bash
# Train and evaluate GRU, LSTM and DG-LSTM at several depths and print the paper's Table 1.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
AVERAGE="last:5"
source "$RECIPE/../translation.sh"

usage() {
    cat <<END
usage: run_table.sh [options] [-- options of fairseq-train]

  --depth N[,N…]       depths (default: 3,5,10)
  --seeds N            seeds 1 to N (default: 1)
  --data DIR           folder that prepare.sh filled (default: $RECIPE/data)
  --out DIR            folder of the runs (default: $RECIPE/out)
  --checkpoint WHICH   best, last, an average of N: last:N, best:N, or that of a training
                       with --store-ema: ema (default: $AVERAGE)

Calling it again continues interrupted runs.
END
}

parse_options usage "--depth --seeds --data --out --checkpoint --" "$@"
SEED="${SEED// /,}"
archs=()
for depth in $DEPTH; do
    archs+=("stacked_gru_btec_$depth" "stacked_lstm_btec_$depth" "dg_lstm_btec_$depth")
done
runs=(--data "$DATA" --out "$OUT" --arch "$(IFS=,; echo "${archs[*]}")" --seed "${SEED:-1}")
"$RECIPE/train.sh" "${runs[@]}" -- ${EXTRA[@]+"${EXTRA[@]}"}
"$RECIPE/evaluate.sh" "${runs[@]}" --checkpoint "$AVERAGE"
"$PYTHON" -m fairseq_casrnn.evaluation.depth_table "$OUT/results.jsonl" --checkpoint "$AVERAGE"
