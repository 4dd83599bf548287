#!/usr/bin/env bash
# Generate Dyck languages of bounded depth and binarise them for fairseq.
set -euo pipefail

RECIPE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
source "$RECIPE/../language_model.sh"
source "$RECIPE/common.sh"

case " $* " in *" -h "* | *" --help "*)
    cat <<END
usage: prepare.sh [--m 4,6,8] [--out DIR] [options of casrnn data dyck]

  --m N[,N…]   greatest depths (default: 4,6,8)
  --out DIR    the data of depth N go to DIR/mN (default: $RECIPE/data)

Options of casrnn data dyck: --k, --train, --valid, --test, --lengths, --long-lengths, --seed,
--unique, --force.
END
    exit 0
    ;;
esac
dyck_options --out "$RECIPE/data" "$@"
for m in $DEPTHS; do
    "$PYTHON" -m fairseq_casrnn.cli data dyck --m "$m" --out "$BASE_OUT/m$m" ${REST[@]+"${REST[@]}"}
done
