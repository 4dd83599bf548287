#!/usr/bin/env bash
# Perplexity of language models trained by train.sh, sentence by sentence.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run evaluate "$here/recipe.yaml" "$@"
