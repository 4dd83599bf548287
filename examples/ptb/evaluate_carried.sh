#!/usr/bin/env bash
# Perplexity of language models trained by train_carried.sh, over the continuous text.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run evaluate "$here/carried.yaml" "$@"
