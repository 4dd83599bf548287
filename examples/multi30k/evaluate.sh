#!/usr/bin/env bash
# Translate the Multi30k test set (test_2016_flickr) with trained models and score it.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
AVERAGE="best"

source "$RECIPE/../translation.sh"
evaluate_main "$@"
