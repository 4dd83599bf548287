#!/usr/bin/env bash
# Translate the Multi30k test set (test_2016_flickr) with trained models and score it.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run evaluate "$here/recipe.yaml" "$@"
