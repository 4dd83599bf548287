#!/usr/bin/env bash
# Development experiments of the S-LSTM paper on movie reviews: its Table 2 and figure of steps.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run table "$here/curves.yaml" "$@"
