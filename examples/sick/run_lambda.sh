#!/usr/bin/env bash
# Ablation of the CAS-LSTM paper (Table 6), on SICK: how the lower layer's cell is let in.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run table "$here/lambda.yaml" "$@"
