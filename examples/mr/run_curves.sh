#!/usr/bin/env bash
# The S-LSTM paper's development experiments on movie reviews: its Table 2, and its figure of steps.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run table "$here/curves.yaml" "$@"
