#!/usr/bin/env bash
# Movie reviews with 10-fold cross-validation: prepare, train and evaluate each fold, then a table.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run table "$here/folds.yaml" "$@"
