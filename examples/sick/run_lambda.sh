#!/usr/bin/env bash
# The CAS-LSTM paper's ablation of lambda (its Table 6), on SICK.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run table "$here/lambda.yaml" "$@"
