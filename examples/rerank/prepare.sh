#!/usr/bin/env bash
# From a prepared translation corpus, make data for models that score its n-best lists.
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
exec "$here/../casrnn" rerank prepare --data "$here/../multi30k/data" --out "$here/data" "$@"
