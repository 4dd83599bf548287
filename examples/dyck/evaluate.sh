#!/usr/bin/env bash
# Perplexity beside the source's, and accuracy of closing brackets by distance, of trained models.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$RECIPE/../language_model.sh"
source "$RECIPE/common.sh"

case " $* " in *" -h "* | *" --help "*)
    cat <<END
usage: evaluate.sh [--m 4,6,8] [--data DIR] [--out DIR]

Evaluates all runs in DIR/mN on test and on test1, the longer strings; writes ldpa.SUBSET.csv and
.png into each run's folder, WCPA by epoch of all runs to DIR/mN/wcpa.png, and appends a JSON line to
DIR/results.jsonl.
END
    exit 0
    ;;
esac
dyck_options "$@"
[ ${#REST[@]} -eq 0 ] || fail "unknown option ${REST[0]}; see --help"
found=""
for m in $DEPTHS; do
    logs=() DATA="$BASE_DATA/m$m" OUT="$BASE_OUT/m$m" ARCH="" SEED=""
    [ ! -d "$DATA/data-bin" ] || check_trained_on
    for run in "$BASE_OUT/m$m"/*/seed*; do
        [ -f "$run/checkpoint_best.pt" ] || continue
        found=1
        [ -f "$run/finished" ] || echo "warning: $run was interrupted; call train.sh again" >&2
        [ ! -f "$run/train.log" ] || logs+=("$run/train.log")
        for subset in test test1; do
            echo "${run#"$BASE_OUT/"} $subset"
            "$PYTHON" -m fairseq_casrnn.cli analyze dyck "$BASE_DATA/m$m" --subset "$subset" \
                --path "$run/checkpoint_best.pt" --csv "$run/ldpa.$subset.csv" \
                --png "$run/ldpa.$subset.png" --results "$BASE_OUT/results.jsonl"
        done
    done
    if [ ${#logs[@]} -gt 0 ]; then
        "$PYTHON" -m fairseq_casrnn.analysis.plots metric-curves wcpa "$BASE_OUT/m$m/wcpa.png" \
            "${logs[@]}"
    fi
done
[ -n "$found" ] ||
    fail "$BASE_OUT holds no trained run of --m ${DEPTHS// /,}; train some, or give another --out"
