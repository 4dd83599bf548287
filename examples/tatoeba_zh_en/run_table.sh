#!/usr/bin/env bash
# Train and evaluate GRU, LSTM and DG-LSTM at several depths and print the paper's Table 1.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run table "$here/recipe.yaml" "$@"
