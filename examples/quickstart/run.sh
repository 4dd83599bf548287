#!/usr/bin/env bash
# From nothing to a German-English translator of dates, times, prices and quantities.
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$(cd "$here/../.." && pwd)"

# Chosen so that the demo takes a few minutes on one or two cores.
SENTENCES=50000
MAX_UPDATE=1000
BPE_MERGES=300
SEED=1
ARCH=cas_lstm
# With the default ranges of the initial weights, the decoder aligns late; see docs/translation.md.
MODEL=(
    --encoder-layers 2 --encoder-bidirectional --encoder-embed-dim 128 --encoder-hidden-size 128
    --decoder-layers 2 --decoder-embed-dim 128 --decoder-hidden-size 128 --decoder-out-embed-dim 128
    --embed-range 1 --init-range 0.25 --dropout 0
)

usage() {
    cat <<END
usage: run.sh [--force] [--out DIR]

Generates sentences, trains a small $ARCH on them, translates a test set it has not seen, and draws
a learning curve and an attention map. It takes a few minutes. A second run only shows the results;
an interrupted one goes on where it stopped.

  --force          delete DIR and start again
  --out DIR        where everything goes (default: examples/quickstart/out)
  --sentences N    sentences to generate (default: $SENTENCES)
  --max-update N   updates to train (default: $MAX_UPDATE)
  --seed N         seed of the initial weights and of the order of the data (default: $SEED)
  --arch NAME      architecture, with the options of cas_lstm (default: $ARCH)
END
}

fail() {
    echo "error: $*" >&2
    exit 2
}

positive() {
    [[ "$2" =~ ^[1-9][0-9]*$ ]] || fail "$1 must be a positive number, not '$2'"
}

out="$here/out"
force=""
while [ $# -gt 0 ]; do
    case "$1" in
        -h | --help) usage; exit 0 ;;
        --force) force=1; shift; continue ;;
        --out | --sentences | --max-update | --seed | --arch) [ $# -ge 2 ] || fail "$1 needs a value" ;;
        *) fail "unknown option $1; see --help" ;;
    esac
    case "$1" in
        --out) out="$2" ;;
        --sentences)
            positive "$1" "$2"
            [ "$2" -ge 100 ] || fail "--sentences must be at least 100, not $2"
            SENTENCES="$2" ;;
        --max-update) positive "$1" "$2"; MAX_UPDATE="$2" ;;
        --seed) positive "$1" "$2"; SEED="$2" ;;
        --arch) ARCH="$2" ;;
    esac
    shift 2
done

if ! command -v fairseq-train >/dev/null; then
    [ -x "$root/.venv/bin/fairseq-train" ] || fail "fairseq-train is not on PATH; run make demo"
    PATH="$root/.venv/bin:$PATH"
fi
# Such small matrices gain nothing from many threads, and more threads than cores are slower.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-2}"
# Waiting threads soon sleep instead of keeping a core busy.
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-10000}"
export PYTHONUNBUFFERED=1

# Only a folder with settings.txt, which is written below, is deleted.
settings="sentences $SENTENCES, updates $MAX_UPDATE, merges $BPE_MERGES, seed $SEED, $ARCH ${MODEL[*]}"
if [ -e "$out" ] && [ -n "$(ls -A "$out" 2>/dev/null || echo file)" ]; then
    [ -f "$out/settings.txt" ] || fail "$out is not a folder of this demo; choose another --out"
    if [ -n "$force" ]; then
        rm -rf "$out"
    elif [ "$(cat "$out/settings.txt")" != "$settings" ]; then
        fail "$out was made with other settings; add --force to replace it, or choose another --out"
    fi
fi
mkdir -p "$out"
out="$(cd "$out" && pwd)"
[ -f "$out/settings.txt" ] || echo "$settings" >"$out/settings.txt"
cd "$root"
out="${out#"$root"/}" # shorter if it is in the checkout

say() {
    printf '\n\033[1m%s\033[0m\n' "$*"
}

# Each step ends by creating the file or folder by which a later run knows that it is complete.

prepare() {
    say "1. Prepare: $SENTENCES sentences, $BPE_MERGES BPE merges"
    local draft="$out/prepare.tmp" part side
    rm -rf "$draft" && mkdir -p "$draft/bpe"
    python "$here/generate.py" "$draft/raw" --sentences "$SENTENCES"
    cat "$draft"/raw/train.* >"$draft/both"
    subword-nmt learn-bpe -s "$BPE_MERGES" <"$draft/both" >"$draft/codes" 2>"$draft/log"
    for part in train valid test; do
        for side in de en; do
            subword-nmt apply-bpe -c "$draft/codes" <"$draft/raw/$part.$side" \
                >"$draft/bpe/$part.$side" 2>>"$draft/log"
        done
    done
    fairseq-preprocess --user-dir fairseq_casrnn \
        --source-lang de --target-lang en --joined-dictionary \
        --trainpref "$draft/bpe/train" --validpref "$draft/bpe/valid" \
        --testpref "$draft/bpe/test" --destdir "$draft/data-bin" >>"$draft/log" 2>&1 ||
        { tail -n 5 "$draft/log" >&2; fail "fairseq-preprocess failed, see $draft/log"; }
    rm "$draft/both"
    mv "$draft" "$out/data"
    paste <(head -n 3 "$out/data/raw/train.de") <(head -n 3 "$out/data/raw/train.en") |
        awk -F '\t' '{ print "  " $1 "\n    " $2 }'
}

train() {
    say "2. Train $ARCH (the whole log: $out/train.log)"
    # The progress bar is on stderr. Of the log, on stdout, only some lines are shown.
    fairseq-train "$out/data/data-bin" --user-dir fairseq_casrnn --save-dir "$out/checkpoints" \
        --arch "$ARCH" "${MODEL[@]}" \
        --criterion fused_cross_entropy --optimizer torch_adam --adam-betas "(0.9, 0.98)" \
        --lr 0.004 --clip-norm 1 \
        --lr-scheduler polynomial_decay --warmup-updates 100 --total-num-update "$MAX_UPDATE" \
        --max-update "$MAX_UPDATE" --max-tokens 1000 --seed "$SEED" --cpu --num-workers 0 \
        --save-interval-updates 120 --keep-interval-updates 1 --no-epoch-checkpoints \
        --log-interval 50 | tee -a "$out/train.log" | awk '
            /[|] (train|valid|train_inner) [|]|shared model params|engine:|Loaded checkpoint/ {
                sub(/^[^|]*[|] [^|]* [|] /, ""); print "  " $0; fflush() }
            /[|] (WARNING|ERROR) [|]/ { print; fflush() }'
    touch "$out/trained"
}

translate() {
    say "3. Translate the test set, beam 10"
    fairseq-generate "$out/data/data-bin" --user-dir fairseq_casrnn --gen-subset test \
        --path "$out/checkpoints/checkpoint_best.pt" --beam 10 --max-len-a 2 --max-len-b 20 \
        --remove-bpe --scoring sacrebleu --cpu --max-tokens 4000 --num-workers 0 \
        >"$out/test.txt.tmp" 2>"$out/test.log" ||
        { tail -n 5 "$out/test.log" >&2; fail "fairseq-generate failed, see $out/test.log"; }
    mv "$out/test.txt.tmp" "$out/test.txt"
}

draw() {
    say "4. Draw"
    # Without matplotlib there are no figures, which is no error.
    PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" python "$here/draw.py" "$out" "$sentence" \
        2>"$out/draw.log" || grep '^error' "$out/draw.log" >&2 ||
        fail "drawing failed, see $out/draw.log"
}

sentence="am dreiundzwanzigsten März neunzehnhundertvierundachtzig um viertel nach drei"
trap 'echo; echo "interrupted; run it again to continue"; exit 130' INT
[ -f "$out/test.txt" ] && say "Finished before (--force starts again):"
[ -d "$out/data" ] || prepare
[ -f "$out/trained" ] || train
[ -f "$out/test.txt" ] || translate
[ -f "$out/attention.png" ] || draw

interactive="$(command -v fairseq-interactive)"
interactive="${interactive#"$root"/}"
quoted="$(printf %q "$out")"
say "Results"
python "$here/report.py" "$out/test.txt"
[ "$SECONDS" -lt 20 ] || echo "Minutes taken: $((SECONDS / 60)):$(printf %02d $((SECONDS % 60)))"
cat <<END

Where everything is:
  $out/data               sentences, BPE merges, binarised data
  $out/checkpoints        the model
  $out/train.log          fairseq's training log
  $out/test.txt           the translated test set
END
for picture in learning_curve attention; do
    [ ! -f "$out/$picture.png" ] || echo "  $out/$picture.png"
done
cat <<END

Translate your own sentence (from $root):

echo "$sentence" | $(printf %q "$interactive") $quoted/data/data-bin --user-dir fairseq_casrnn --path $quoted/checkpoints/checkpoint_best.pt --source-lang de --target-lang en --bpe subword_nmt --bpe-codes $quoted/data/codes --beam 10 --cpu 2>&1 | awk -F '\\t' '/^D-|^error|Error:/ { print \$NF }'

END
