#!/usr/bin/env bash
# Perplexity of language models trained by train.sh on WikiText-2, over the continuous text.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run evaluate "$here/recipe.yaml" "$@"
