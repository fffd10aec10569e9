"""Addresses, secrets and peers are checked before the heavy import."""

import subprocess
import sys


def test_the_network_needs_no_torch() -> None:
    code = "import sys; import p2p.net.zeromq, p2p.net.keys, p2p.net.wire; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
