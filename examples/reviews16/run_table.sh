#!/usr/bin/env bash
# The 16 review sets in one command: prepare, train and evaluate each, then a table with averages.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run table "$here/table.yaml" "$@"
