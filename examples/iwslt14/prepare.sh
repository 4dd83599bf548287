#!/usr/bin/env bash
# IWSLT14 de-en: official archive -> tokenised, cleaned, lower-cased, joint BPE, binarised.
here="$(dirname "${BASH_SOURCE[0]}")"
exec "$here/../casrnn" run prepare "$here/recipe.yaml" "$@"
