#!/usr/bin/env bash
# Rerank a translation model's n-best lists with the scores of other models.
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
exec "$here/../casrnn" rerank all --data "$here/../multi30k/data" --prepared "$here/data" \
    --out "$here/out/lists" "$@"
