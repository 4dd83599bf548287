#!/usr/bin/env bash
# Train language models on the Penn Treebank as the depth-gated LSTM paper does: no dropout, separate embeddings.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run train "$here/paper.yaml" "$@"
