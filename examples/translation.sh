# What the scripts of the translation recipes share; to be sourced, not run.
#
# A script sets RECIPE (its folder) and what it needs of ARCHS, SEEDS, SETTINGS (options of
# fairseq-train), ROUTING (more of them, for second-order LSTMs), UNROUTED (for all others) and
# AVERAGE, and calls prepare_main, train_main or evaluate_main.
# Runs lie in OUT/ARCH/seedN, OUT being DEFAULT_OUT (RECIPE/out) unless it is given.

REPO="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export PYTHONPATH="$REPO${PYTHONPATH:+:$PYTHONPATH}"
if [ -z "${PYTHON:-}" ]; then
    PYTHON=python3
    if [ -z "${VIRTUAL_ENV:-}" ] && [ -x "$REPO/.venv/bin/python" ]; then
        PYTHON="$REPO/.venv/bin/python"
    fi
fi

fail() {
    echo "error: $*" >&2
    exit 2
}

# check_python OPTION…: refuses a Python in which nothing here can run. The scripts that this one
# calls need not ask again, nor need those that only tell how they are used.
check_python() {
    [[ " $* " != *" -h "* && " $* " != *" --help "* ]] || return 0
    [ -z "${CASRNN_PYTHON_CHECKED:-}" ] || return 0
    "$PYTHON" -c 'import importlib.util; assert importlib.util.find_spec("fairseq_cli")' 2> /dev/null ||
        fail "$PYTHON does not run or has no fairseq; call make install in $REPO first, or activate" \
            "the environment that has this package, or name its Python in the variable PYTHON"
    export CASRNN_PYTHON_CHECKED=1
}
check_python "$@"

# What other kinds of recipes have in their place.
TASK=(--task translation)
TINY_ARCH="${TINY_ARCH:-cas_lstm_tiny}"
DEFAULT_OUT="${DEFAULT_OUT:-$RECIPE/out}"
PREPARE_WITH="" # what fills DATA, where it is not prepare.sh --out DATA

# prepare_main MODULE "$@": the options are the module's; usage prints them.
prepare_main() {
    local module="$1" option out=(--out "$RECIPE/data")
    shift
    for option in "$@"; do
        case "$option" in
            -h | --help) usage; exit 0 ;;
            --out | --out=*) out=() ;;
        esac
    done
    exec "$PYTHON" -m "$module" ${out[@]+"${out[@]}"} "$@"
}

train_usage() {
    cat <<END
usage: train.sh [options] [-- options of fairseq-train]

  --arch NAME[,NAME…]  architectures (default: $ARCHS)
  --seed N[,N…]        seeds (default: $SEEDS)
  --seeds N            seeds 1 to N
  --data DIR           folder that prepare.sh filled (default: $RECIPE/data)
  --out DIR            runs go to DIR/ARCH/seedN (default: $DEFAULT_OUT)
  --tiny               one epoch of $TINY_ARCH (or --arch), to see that everything works

An interrupted run continues from its last checkpoint when it is called again, one that has
finished is left as it is. Longer training may be asked for, with --max-epoch, --max-update and
--total-num-update, where the learning rate allows it: one that has fallen to zero stays there or
jumps up. A run with other options or data needs another --out. The settings stand at the top of train.sh; options
after -- override them. Trains on the GPU if there is one.${USAGE_NOTE:+
$USAGE_NOTE}
END
}

evaluate_usage() {
    cat <<END
usage: evaluate.sh [options] [-- options of fairseq-generate]

  --arch NAME[,NAME…]  architectures (default: all in --out)
  --seed N[,N…]        seeds (default: all in --out)
  --seeds N            seeds 1 to N
  --data DIR           folder that prepare.sh filled (default: $RECIPE/data)
  --out DIR            folder of the runs (default: $DEFAULT_OUT)
  --checkpoint WHICH   best, last, an average of N: last:N, best:N, or that of a training
                       with --store-ema: ema (default: $AVERAGE)
  --beam N             beam size (default: 10)
  --baseline NAME      architecture the paired t-test compares the others with

Prints tokenised BLEU and detokenised sacreBLEU, appends one JSON line a run to DIR/results.jsonl
and ends with mean ± deviation over the seeds.
END
}

# parse_options USAGE ALLOWED "$@": sets the variables below; EXTRA is what follows "--", if that is
# allowed.
parse_options() {
    local usage="$1" allowed="$2"
    shift 2
    DATA="$RECIPE/data" OUT="$DEFAULT_OUT" TINY="" ARCH="" SEED="" DEPTH="3 5 10" BEAM=10
    BASELINE="" CACHE="" VARIANT="" EXTRA=()
    while [ $# -gt 0 ]; do
        case "$1" in
            -h | --help) "$usage"; exit 0 ;;
            --)
                [[ " $allowed " == *" -- "* ]] || fail "no options may follow -- here; see --help"
                shift; EXTRA=("$@"); break ;;
            --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}"; continue ;;
        esac
        [[ " $allowed " == *" $1 "* ]] || fail "unknown option $1; see --help"
        if [ "$1" = --tiny ]; then TINY=1; shift; continue; fi
        [ $# -ge 2 ] || fail "$1 needs a value; see --help"
        case "$1" in
            --arch) ARCH="${2//,/ }"; check_names "$1" $ARCH ;;
            --seed) SEED="${2//,/ }"; check_number "$1" $SEED ;;
            --seeds) check_number "$1" "$2"; SEED="$(seq -s ' ' 1 "$2")" ;;
            --depth) DEPTH="${2//,/ }"; check_number "$1" $DEPTH ;;
            --data) DATA="$2" ;;
            --out) OUT="$2" ;;
            --checkpoint) AVERAGE="$2"; check_average ;;
            --beam) check_number "$1" "$2"; BEAM="$2" ;;
            --baseline) BASELINE="$2" ;;
            --variant) VARIANT="${2//,/ }" ;;
            --cache) check_number "$1" "$2"; CACHE="$2" ;;
            --subset) SUBSET="$2" ;;
        esac
        shift 2
    done
    [ -d "$DATA/data-bin" ] || fail "$DATA is not prepared; run ${PREPARE_WITH:-prepare.sh --out $DATA} first"
}

# check_names OPTION NAME…: runs lie in folders of these names.
check_names() {
    local option="$1" value
    shift
    for value in "$@"; do
        [[ "$value" =~ ^[[:alnum:]_][[:alnum:]_.-]*$ ]] ||
            fail "$option '$value' is no name of an architecture or system; see --help"
    done
}

check_number() {
    local option="$1" value
    shift
    for value in "$@"; do
        [[ "$value" =~ ^[1-9][0-9]*$ ]] || fail "$option must be a positive number, not '$value'"
    done
}

check_average() {
    [[ "$AVERAGE" =~ ^(best|last|ema|(best|last):[1-9][0-9]*)$ ]] ||
        fail "--checkpoint must be best, last, ema, best:N or last:N, not '$AVERAGE'"
}

train_main() {
    parse_options train_usage "--arch --seed --seeds --data --out --tiny --" "$@"
    local arch seed
    if [ -n "$TINY" ]; then
        ARCHS="$TINY_ARCH"
        SETTINGS+=(--max-epoch 1)
    fi
    for arch in ${ARCH:-$ARCHS}; do
        check_arch "$arch"
    done
    for arch in ${ARCH:-$ARCHS}; do
        for seed in ${SEED:-$SEEDS}; do
            train_one "$arch" "$seed" "$OUT/$arch/seed$seed"
        done
    done
}

# check_arch NAME: fairseq itself knows which it has.
check_arch() { :; }

# train_one ARCH SEED RUN
train_one() {
    own_options "$1"
    fairseq_train "$@" "${TASK[@]}" --arch "$1" ${OWN[@]+"${OWN[@]}"}
}

# own_options ARCH: sets OWN to what is for it of ROUTING and UNROUTED.
own_options() {
    OWN=(${UNROUTED[@]+"${UNROUTED[@]}"})
    case "$1" in second_order_*) OWN=(${ROUTING[@]+"${ROUTING[@]}"}) ;; esac
}

# training_data DIR: a checksum of what training reads there.
training_data() {
    find -L "$1" -type f \( -name 'dict*.txt' -o -name 'train*' -o -name singletons.txt \) -print0 |
        LC_ALL=C sort -z | xargs -0 cat | cksum
}

# identity OPTION…: what makes a run another one: its data, and all options but those of its length.
identity() {
    training_data "$DATA/data-bin"
    while [ $# -gt 0 ]; do
        case "$1" in
            --max-epoch | --max-update | --total-num-update | --log-interval | --tensorboard-logdir)
                [ $# -lt 2 ] || shift ;;
            --max-epoch=* | --max-update=* | --total-num-update=* | --log-interval=*) ;;
            --tensorboard-logdir=* | --cpu) ;;
            --mix) echo "$1"; mixed_data "${2-}" ;;
            --mix=*) echo "$1"; mixed_data "${1#*=}" ;;
            --assignment-path) echo "$1"; table "${2-}"; [ $# -lt 2 ] || shift ;;
            --assignment-path=*) echo "${1%%=*}"; table "${1#*=}" ;;
            *) echo "$1" ;;
        esac
        shift
    done
}

# mixed_data DIR:FRACTION: a checksum of DIR, if there is one; otherwise fairseq-train will say so.
mixed_data() {
    if [ -d "${1%:*}" ]; then training_data "${1%:*}"; fi
}

# table FILE: its checksum, if it is there; otherwise fairseq-train will say so.
table() {
    if [ -f "$1" ]; then cksum < "$1"; fi
}

# fairseq_train NAME SEED RUN OPTION…: those options, then SETTINGS and EXTRA, which may override them.
fairseq_train() {
    local name="$1" seed="$2" run="$3" options self before="" status=0 logged=0
    shift 3
    options=("$@" "${SETTINGS[@]}" ${EXTRA[@]+"${EXTRA[@]}"})
    self="$(identity "${options[@]}")"
    if [ -f "$run/checkpoint_last.pt" ] && [ -f "$run/identity" ] &&
        [ "$(cat "$run/identity")" != "$self" ]; then
        fail "$run was begun with other options or data; give another --out, or delete that folder" \
            "to train anew"
    fi
    if [ -f "$run/finished" ] && [ "$(cat "$run/finished")" = "${options[*]}" ]; then
        echo "$name with seed $seed is finished: $run"
        return
    fi
    make_folder "$run"
    # While a longer training goes on, the run is no longer a finished one.
    if [ -f "$run/finished" ]; then before="$(cat "$run/finished")"; rm "$run/finished"; fi
    echo "$self" > "$run/identity"
    echo "training $name with seed $seed in $run"
    # Both streams go to the log, and remain two: what went wrong is said on the second.
    if [ -f "$run/train.log" ]; then logged="$(wc -l < "$run/train.log")"; fi
    {
        "$PYTHON" -m fairseq_cli.train "$DATA/data-bin" --user-dir "$REPO/fairseq_casrnn" \
            --seed "$seed" --save-dir "$run" --no-progress-bar --log-format simple \
            "${options[@]}" 2>&1 >&3 | log_to "$run/train.log" >&2
    } 3>&1 | log_to "$run/train.log" || status=$?
    if [ "$status" -ne 0 ]; then
        # It was refused, or broke off at once: what there was is as it was.
        if [ -n "$before" ] && ! trained_on "$run"; then echo "$before" > "$run/finished"; fi
        exit "$status"
    fi
    if [ -f "$run/checkpoint_last.pt" ] && ! trained_on "$run"; then
        local why="its checkpoints are of as many epochs or more"
        if tail -n "+$((logged + 1))" "$run/train.log" | grep -q "the training stays stopped"; then
            why="it had stopped early, by --patience, and stays stopped; raise that to go on"
        fi
        echo "$name with seed $seed had nothing left to train: $why"
    fi
    echo "${options[*]}" > "$run/finished"
}

# log_to FILE: copies what it reads. Ctrl-C and the signals before a job's end are for the training
# alone, whose last words this still writes.
log_to() {
    (trap "" INT TERM USR1; exec tee -a "$1")
}

# make_folder DIR: DIR is OUT or lies there.
make_folder() {
    mkdir -p "$1" 2> /dev/null && [ -w "$1" ] ||
        fail "--out $OUT is no folder to write to; give another"
}

# trained_on RUN: whether there is a checkpoint that this training wrote. One as old as identity is
# new, too: the clock of a file system ticks slower than a small program writes.
trained_on() {
    ! [ "$1/identity" -nt "$1/checkpoint_last.pt" ]
}

# check_trained_on: refuses runs, of those to be evaluated, that were trained on other data than DATA.
check_trained_on() {
    local file run data
    data="$(training_data "$DATA/data-bin")"
    for file in "$OUT"/*/seed*/identity; do
        run="${file%/identity}"
        [ -f "$run/checkpoint_last.pt" ] || continue # nothing to evaluate
        [[ -z "$ARCH" || " $ARCH " == *" $(basename "$(dirname "$run")") "* ]] || continue
        [[ -z "$SEED" || " $SEED " == *" ${run##*/seed} "* ]] || continue
        [ "$(head -n 1 "$file")" = "$data" ] ||
            fail "$run was trained on other data than that of $DATA, whose sentences it may have" \
                "seen; give the --data it was trained on, or choose others with --arch and --seed"
    done
}

evaluate_main() {
    parse_options evaluate_usage \
        "--arch --seed --seeds --data --out --checkpoint --beam --baseline --" "$@"
    check_trained_on
    "$PYTHON" -m fairseq_casrnn.evaluation.evaluate --data "$DATA" --out "$OUT" \
        ${ARCH:+--arch $ARCH} ${SEED:+--seed $SEED} --checkpoint "$AVERAGE" --beam "$BEAM" \
        ${BASELINE:+--baseline "$BASELINE"} -- ${EXTRA[@]+"${EXTRA[@]}"}
}
