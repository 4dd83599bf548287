#!/usr/bin/env bash
# Train language models on the Penn Treebank as one continuous text with carried state.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run train "$here/carried.yaml" "$@"
