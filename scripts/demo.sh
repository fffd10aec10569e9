#!/usr/bin/env bash
# Four nodes learn handwritten digits from one another. The launcher's options go to the launcher, all others to
# examples/digits.py: bash scripts/demo.sh -n 8 --topology ring --optimizer adam
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

launcher=(-n 4)
script=()
while [ $# -gt 0 ]; do
    case $1 in
        -n | --nodes | --topology | --algorithm | --listen | --port | --advertise | --interface | --site | --run-dir)
            [ $# -gt 1 ] || fail "$1 needs a value"
            launcher+=("$1" "$2")
            shift 2
            ;;
        --plain | --nodes=* | --topology=* | --algorithm=* | --listen=* | --port=* | --advertise=* | --interface=* | --site=* | --run-dir=*)
            launcher+=("$1")
            shift
            ;;
        *)
            script+=("$1")
            shift
            ;;
    esac
done

setup examples
exec "$venv"/bin/starlings launch "${launcher[@]}" examples/digits.py ${script[@]+"${script[@]}"}
