# What prepare.sh and rerank.sh share; to be sourced, not run.
#
# parse OPTIONS "$@": --name VALUE sets NAME, for the names in OPTIONS; those with a + behind take
# several values and become arrays. Sets SOURCE, TARGET and KIND (bpe or tok) of $DATA.

source "$(dirname "${BASH_SOURCE[0]}")/../translation.sh"

parse() {
    local allowed=" $1 " name variable
    shift
    while [ $# -gt 0 ]; do
        case "$1" in --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;; esac
        name="${1#--}" variable="${1#--}"
        variable="${variable//-/_}" variable="${variable^^}"
        case "$1" in
            -h | --help) usage; exit 0 ;;
            --*) ;;
            *) fail "unknown argument $1; see --help" ;;
        esac
        [[ "$allowed" == *" $name "* || "$allowed" == *" $name+ "* ]] ||
            fail "unknown option $1; see --help"
        [ $# -ge 2 ] && [[ "$2" != --* ]] || fail "$1 needs a value; see --help"
        shift
        if [[ "$allowed" == *" $name "* ]]; then
            declare -g "$variable=$1"
            shift
            continue
        fi
        while [ $# -gt 0 ] && [[ "$1" != --* ]]; do
            eval "$variable+=(\"\$1\")" # the name is one of OPTIONS
            shift
        done
    done
    local index=("$DATA"/data-bin/test.*-*.*.idx)
    [ -f "${index[0]}" ] || fail "$DATA is not prepared; run ../multi30k/prepare.sh --out $DATA first"
    name="$(basename "${index[0]}")"
    name="${name#test.}" name="${name%%.*}"
    SOURCE="${name%-*}" TARGET="${name#*-}" KIND=tok
    [ ! -f "$DATA/text/bpe.codes" ] || KIND=bpe
}
