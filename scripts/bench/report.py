"""Makes docs/benchmarks.md of what the benches wrote with --json to docs/benchmarks/; `all.py` runs them and then this.

python scripts/bench/exchange.py --json docs/benchmarks/exchange.json
python scripts/bench/report.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"
HEAD = """# Benchmarks

Made by `python scripts/bench/report.py` from docs/benchmarks/*.json, which benches write with `--json`; `python
scripts/bench/all.py` runs them all. Each runs ours and the peers in one run, in turn, and checks results before it counts them.
Figures are medians (least to most). Compare within a table, not between machines. Targets that were missed are shown as such.
"""


def section(content: Mapping[str, Any]) -> str:
    """One bench: its command, its machine, its tables."""
    machine = ", ".join(f"{name} {value}" for name, value in content["machine"].items())
    settings = ", ".join(f"{name} {value}" for name, value in content["settings"].items())
    parts = [f"## {content['bench']}", f"`{content['command']}` ({settings})", f"On: {machine}."]
    return "\n\n".join([*parts, *(table(t) for t in content["tables"])]) + "\n"


def table(content: Mapping[str, Any]) -> str:
    rows = [content["columns"], ["---", *("---:" for _ in content["columns"][1:])], *content["rows"]]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([f"**{content['title']}**", "", *lines, *(f"\n{note}" for note in content["notes"])])


def page(folder: Path) -> str:
    """The whole page, of all results in a folder, in the order of their names."""
    return "\n".join([HEAD, *(section(json.loads(file.read_text())) for file in sorted(folder.glob("*.json")))])


if __name__ == "__main__":
    (DOCS / "benchmarks.md").write_text(page(DOCS / "benchmarks"))
