# What the scripts of this recipe share; to be sourced after ../language_model.sh.

# dyck_options "$@": takes --m, --data and --out away; sets DEPTHS, BASE_DATA, BASE_OUT and REST.
dyck_options() {
    DEPTHS="4 6 8" BASE_DATA="$RECIPE/data" BASE_OUT="$RECIPE/out" REST=()
    while [ $# -gt 0 ]; do
        case "$1" in
            --) REST+=("$@"); return ;;
            --*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}"; continue ;;
            --m | --data | --out) [ $# -ge 2 ] || fail "$1 needs a value; see --help" ;;
        esac
        case "$1" in
            --m) DEPTHS="${2//,/ }"; check_number "$1" $DEPTHS; shift 2 ;;
            --data) BASE_DATA="$2"; shift 2 ;;
            --out) BASE_OUT="$2"; shift 2 ;;
            *) REST+=("$1"); shift ;;
        esac
    done
}
