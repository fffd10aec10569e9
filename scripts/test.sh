#!/usr/bin/env bash
# All tests. Arguments go to pytest: bash scripts/test.sh tests/unit -k wire
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

setup dev
exec "$venv"/bin/python -m pytest "$@"
