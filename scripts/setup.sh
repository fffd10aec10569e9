# Sourced by demo.sh and test.sh: makes .venv in the repository and installs into it, unless that has been done already.
# setup <extra> installs the package with that extra, at the versions of constraints.txt. STARLINGS_VENV names another place.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
venv=${STARLINGS_VENV:-.venv}

fail() {
    echo "starlings: $*" >&2
    exit 1
}

find_python() {
    local name
    for name in python3.11 python3.12 python3.13 python3.14 python3; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    fail "no Python 3.11 or newer is on the PATH: install one (apt install python3.11-venv, or python.org)"
}

setup() {
    local python stamp="$venv/starlings-$1"
    if [ -f "$stamp" ] && [ "$stamp" -nt setup.py ] && [ "$stamp" -nt constraints.txt ]; then
        return
    fi
    if [ ! -x "$venv"/bin/python ] || ! "$venv"/bin/python -m pip --version >/dev/null 2>&1; then
        python=$(find_python) || exit 1
        rm -rf "$venv"
        "$python" -m venv "$venv" 2>/dev/null || fail "$python can't make a virtual environment: install its venv package (apt install python3-venv)"
    fi
    echo "installing into $venv (torch is large: this takes a few minutes the first time)"
    "$venv"/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[$1]" ||
        fail "the installation failed, see above; it needs the network (or a mirror: pip's PIP_INDEX_URL) and 2 GB of disk"
    touch "$stamp"
}
