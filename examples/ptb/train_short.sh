#!/usr/bin/env bash
# Train language models on the Penn Treebank in a quarter of the time of train.sh.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run train "$here/short.yaml" "$@"
