#!/usr/bin/env bash
# Development experiments of the S-LSTM paper on movie reviews: its Table 2 and figure of steps.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
SEEDS="1"
FOLDER="curves"
ABOUT="Accuracy on the development set of the sentence-state LSTM with 1 to 11 steps; with other
windows, numbers of sentence nodes and hidden sizes at 9 steps; without <s> and </s>; with attention."

source "$RECIPE/../classification.sh"
SUBSET="valid"
VARIANTS=()
for steps in 1 3 5 7 9 11; do
    VARIANTS+=("steps-$(printf %02d "$steps") slstm --num-steps $steps")
done
for window in 2 3; do
    VARIANTS+=("window-$window slstm --window $window")
done
VARIANTS+=("nodes-0 slstm --num-sentence-nodes 0 --pooling mean")
for nodes in 2 3; do
    VARIANTS+=("nodes-$nodes slstm --num-sentence-nodes $nodes")
done
for size in 100 200 600; do
    VARIANTS+=("hidden-$size slstm --encoder-hidden-size $size")
done
VARIANTS+=("no-boundaries slstm --no-boundaries" "attention slstm_att")
variants_main "$@"
