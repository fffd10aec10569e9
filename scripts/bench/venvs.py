"""Peers' virtual environments, each with its own pins, made once under a cache folder."""

from __future__ import annotations

import shutil
import subprocess
import venv
from pathlib import Path

from harness import say

PINS = {
    "hivemind": ("torch==2.13.0", "hivemind==1.1.12"),
    "decent-dp": ("torch==2.13.0", "decent-dp==0.2.3", "numpy"),
    "torchft": ("torch==2.13.0", "torchft==0.2.0", "numpy"),
}


def python_of(peer: str, cache: Path) -> tuple[Path | None, str]:
    """The interpreter that has the peer's package, or why there is none. The first call installs it, which takes minutes."""
    folder = cache / peer
    python = folder / "bin" / "python"
    done = folder / "installed"
    if done.exists() and done.read_text().split() == list(PINS[peer]):
        return python, ""
    say(f"installing {' '.join(PINS[peer])} in {folder}")
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PINS[peer]]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if "error" in line.lower()]
        return None, f"can't be installed: {(errors or ['pip failed'])[0]}"
    done.write_text("\n".join(PINS[peer]))
    return python, ""
