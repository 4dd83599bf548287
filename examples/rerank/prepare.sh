#!/usr/bin/env bash
# From a prepared translation corpus: data for models that score its n-best lists.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$RECIPE/common.sh"
DATA="$RECIPE/../multi30k/data" OUT="$RECIPE/data"

usage() {
    cat <<END
usage: prepare.sh [--data DIR] [--out DIR]

  --data DIR  folder that prepare.sh of a translation recipe filled (default: ../multi30k/data)
  --out DIR   folder to fill (default: $RECIPE/data) with
                right_to_left  the target's words in the opposite order
                backwards      from the target language to the source language
                lm             the target side, for language models
END
}

reversed() {
    awk '{ for (i = NF; i > 0; i--) printf "%s%s", $i, (i == 1 ? "" : " "); print "" }' "$1"
}

# binarise NAME OPTION…: the text of $OUT/NAME, with the dictionaries of $DATA
binarise() {
    local name="$1" split prefixes=()
    shift
    for split in train valid test; do
        prefixes+=("--${split}pref" "$STAGE/$name/text/$split")
    done
    "$PYTHON" -m fairseq_cli.preprocess "${prefixes[@]}" "$@" \
        --destdir "$STAGE/$name/data-bin" >"$STAGE/log" 2>&1 || {
        tail -n 5 "$STAGE/log" >&2
        fail "fairseq-preprocess failed on $name"
    }
}

parse "data out" "$@"
[ ! -e "$OUT" ] || fail "$OUT exists; remove it to prepare again, or give another --out"
mkdir -p "$(dirname "$OUT")" 2> /dev/null && STAGE="$(mktemp -d "$OUT.XXXXXX" 2> /dev/null)" ||
    fail "--out $OUT cannot be made; give another" # STAGE is renamed at the end
chmod 755 "$STAGE"
trap 'rm -rf "$STAGE"' EXIT

mkdir -p "$STAGE"/{right_to_left,backwards,lm}/text
for split in train valid test; do
    text="$DATA/text/$split.$KIND"
    for lang in "$SOURCE" "$TARGET"; do
        cp "$text.$lang" "$STAGE/backwards/text/$split.$lang"
    done
    cp "$text.$SOURCE" "$STAGE/right_to_left/text/$split.$SOURCE"
    reversed "$text.$TARGET" >"$STAGE/right_to_left/text/$split.$TARGET"
    cp "$text.$TARGET" "$STAGE/lm/text/$split"
done
dictionary="$DATA/data-bin/dict"
binarise right_to_left -s "$SOURCE" -t "$TARGET" \
    --srcdict "$dictionary.$SOURCE.txt" --tgtdict "$dictionary.$TARGET.txt"
binarise backwards -s "$TARGET" -t "$SOURCE" \
    --srcdict "$dictionary.$TARGET.txt" --tgtdict "$dictionary.$SOURCE.txt"
binarise lm --only-source --srcdict "$dictionary.$TARGET.txt"
rm "$STAGE/log"
mv "$STAGE" "$OUT"
echo "prepared $OUT/{right_to_left,backwards,lm}"
