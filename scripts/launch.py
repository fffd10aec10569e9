"""`starlings launch` from a clone, without installing it: python scripts/launch.py -n 4 examples/digits.py"""

import os
import sys
from pathlib import Path

root = str(Path(__file__).resolve().parent.parent)
sys.path.insert(0, root)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))  # for the nodes

from p2p.cli import main  # noqa: E402  (after the path)

sys.argv.insert(1, "launch")
main()
