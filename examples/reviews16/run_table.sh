#!/usr/bin/env bash
# The 16 review sets in one command: prepare, train and evaluate each, then a table with averages.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$RECIPE/../classification.sh"

usage() {
    cat <<END
usage: run_table.sh --raw DIR [options] [-- options of fairseq-train]

  --raw DIR            folder of SET.task.train and SET.task.test (prepare.sh --help)
  --set NAME[,NAME…]   review sets (default: all 16)
  --data DIR           each set is prepared in DIR/SET (default: $RECIPE/data)
  --out DIR            runs go to DIR/SET/NAME/seedN (default: $RECIPE/out)

--arch, --seed, --seeds and --tiny are those of train.sh; --vocabulary, --tokenizer, --min-count,
--valid-size, --split-seed and --no-lowercase those of prepare.sh. Ends with a table of test accuracy,
training seconds and, in brackets, test seconds: a row for each set and their average.
END
}

parse_table_options usage --set "$@"
"$RECIPE/prepare.sh" --raw "$RAW" --out "$DATA" ${CHOSEN:+--set $CHOSEN} \
    ${PREPARE[@]+"${PREPARE[@]}"}
if [ -z "$CHOSEN" ]; then
    CHOSEN="$(cd "$DATA" && echo */data-bin)"
    CHOSEN="${CHOSEN//\/data-bin/}"
fi
for name in $CHOSEN; do
    train_and_evaluate "$name"
done
show_table
