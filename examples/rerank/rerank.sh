#!/usr/bin/env bash
# Rerank a translation model's n-best lists with the scores of further models.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$RECIPE/common.sh"
DATA="$RECIPE/../multi30k/data" PREPARED="$RECIPE/data" OUT="$RECIPE/out/lists"
BASELINE="" NBEST=20 RUNS=10
FORWARD=() RIGHT_TO_LEFT=() BACKWARDS=() LM=()

usage() {
    cat <<END
usage: rerank.sh --baseline CHECKPOINT [options]

  --baseline CHECKPOINT        translation model whose n-best lists are reranked
  --forward CHECKPOINT…        translation models that score them
  --right-to-left CHECKPOINT…  translation models trained on PREPARED/right_to_left
  --backwards CHECKPOINT…      translation models trained on PREPARED/backwards
  --lm CHECKPOINT…             language models trained on PREPARED/lm
  --data DIR                   the translation corpus (default: ../multi30k/data)
  --prepared DIR               folder that prepare.sh filled (default: $RECIPE/data)
  --out DIR                    lists, scores, weights, translations (default: $RECIPE/out/lists)
  --nbest N                    hypotheses a sentence, and beam size (default: 20)
  --runs N                     tune so often (default: 10)

A second call with the same --out makes no list and no score again that is there.
END
}

casrnn() {
    "$PYTHON" -m fairseq_casrnn.cli rerank "$@"
}

# generate SPLIT: the list of a split, in units of the model; fairseq's log beside it
generate() {
    local list="$OUT/$1.nbest" draft="$OUT/$1.nbest.$$" # another call may be at it
    [ ! -f "$list" ] || return 0
    echo "translating $1 with beam $NBEST"
    "$PYTHON" -m fairseq_cli.generate "$DATA/data-bin" --user-dir "$REPO/fairseq_casrnn" \
        --path "$BASELINE" --gen-subset "$1" --beam "$NBEST" --nbest "$NBEST" --max-tokens 2000 \
        --no-progress-bar >"$draft" 2>"$list.log" || {
        rm -f "$draft"
        tail -n 5 "$list.log" >&2
        fail "fairseq-generate failed on $1; see $list.log"
    }
    mv "$draft" "$list"
}

# score SPLIT: one file for each model, in SCORES
score() {
    local kind path data flags number=0
    SCORES=()
    for kind in forward right-to-left backwards lm; do
        local -n models="${KINDS[$kind]}"
        data="$PREPARED/${kind//-/_}/data-bin" flags=("--$kind")
        [ "$kind" != forward ] || { data="$DATA/data-bin" flags=(); }
        for path in ${models[@]+"${models[@]}"}; do
            number=$((number + 1))
            SCORES+=("$OUT/$1.$number-$kind.tsv")
            echo "$1: $path ${flags[*]-}"
            casrnn score "$OUT/$1.nbest" --data "$data" --path "$path" ${flags[@]+"${flags[@]}"} \
                --output "${SCORES[-1]}"
        done
    done
}

declare -A KINDS=(
    [forward]=FORWARD [right-to-left]=RIGHT_TO_LEFT [backwards]=BACKWARDS [lm]=LM
)
parse "baseline forward+ right-to-left+ backwards+ lm+ data prepared out nbest runs" "$@"
[ -n "$BASELINE" ] || fail "--baseline is missing; see --help"
for path in "$BASELINE" ${FORWARD[@]+"${FORWARD[@]}"} ${LM[@]+"${LM[@]}"} \
    ${RIGHT_TO_LEFT[@]+"${RIGHT_TO_LEFT[@]}"} ${BACKWARDS[@]+"${BACKWARDS[@]}"}; do
    [ -f "$path" ] || fail "checkpoint $path does not exist; train the model first"
done
check_number --nbest "$NBEST"
check_number --runs "$RUNS"
make_folder "$OUT"
translated="$(cat "$DATA/data-bin"/{dict,valid,test}.* | cksum)"
setting="$(realpath "$DATA" "$BASELINE") $(cksum <"$BASELINE") $NBEST $translated"
if [ -f "$OUT/setting" ] && [ "$(cat "$OUT/setting")" != "$setting" ]; then
    fail "$OUT holds lists of another --baseline, --data or --nbest, or of data that were prepared" \
        "anew; give another --out"
fi
echo "$setting" >"$OUT/setting"
join=()
[ "$KIND" = tok ] || join=(--join-subwords)

for split in valid test; do
    generate "$split"
done
score valid
casrnn tune --nbest "$OUT/valid.nbest" --scores ${SCORES[@]+"${SCORES[@]}"} ${join[@]+"${join[@]}"} \
    --reference "$DATA/text/valid.tok.$TARGET" --runs "$RUNS" --output "$OUT/weights.json"
score test
casrnn apply --nbest "$OUT/test.nbest" --scores ${SCORES[@]+"${SCORES[@]}"} \
    --reference "$DATA/text/test.tok.$TARGET" --weights "$OUT/weights.json" \
    --output "$OUT/test.reranked.$TARGET" --json "$OUT/result.json"
