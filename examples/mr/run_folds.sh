#!/usr/bin/env bash
# Movie reviews with 10-fold cross-validation: prepare, train and evaluate each fold, then a table.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$RECIPE/../classification.sh"

usage() {
    cat <<END
usage: run_folds.sh --raw DIR [options] [-- options of fairseq-train]

  --raw DIR            folder of rt-polarity.neg and rt-polarity.pos (prepare.sh --help)
  --folds N[,N…]       folds to test on (default: 0 to 9)
  --data DIR           fold N is prepared in DIR/foldN (default: $RECIPE/data)
  --out DIR            runs go to DIR/foldN/NAME/seedN (default: $RECIPE/out)

--arch, --seed, --seeds and --tiny are those of train.sh; --vocabulary, --tokenizer, --min-count,
--split-seed and --no-lowercase those of prepare.sh. Ends with a table of test accuracy,
training seconds and, in brackets, test seconds: a row for each fold and their average.
END
}

parse_table_options usage --folds "$@"
for fold in ${CHOSEN:-0 1 2 3 4 5 6 7 8 9}; do
    "$RECIPE/prepare.sh" --raw "$RAW" --fold "$fold" --out "$DATA/fold$fold" \
        ${PREPARE[@]+"${PREPARE[@]}"}
    train_and_evaluate "fold$fold"
done
show_table
