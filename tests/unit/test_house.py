"""The house's rules: which way imports run, what is never used, what a light import costs."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for package in ("p2p", "topology", "optim") for path in (ROOT / package).rglob("*.py"))

ALLOWED = {
    "topology": {"topology"},
    "optim": {"topology", "optim"},
    "p2p.config": set(),
    "p2p.errors": set(),
    "p2p.report": set(),
    "p2p.net": {"p2p.net", "p2p.config", "p2p.errors", "p2p.report"},
    "p2p.state": {"p2p.state", "p2p.config", "p2p.errors", "p2p.report", "topology", "optim"},
    "p2p.agent": {"p2p.agent", "p2p.net", "p2p.state", "p2p.config", "p2p.errors", "p2p.report", "topology", "optim"},
    "p2p.zygote": {"p2p.errors"},
    "p2p.rundir": set(),
    "p2p.launcher": {"p2p.config", "p2p.errors", "p2p.zygote", "p2p.rundir"},
    "p2p.live": {"p2p.launcher", "p2p.rundir", "p2p.net"},
    "p2p.ask": {"p2p.net", "p2p.errors"},
}
"""Who may import whom; what isn't named (node, sim, cli, the public face) stands on top and may import all."""
BELOW_NODE = {"p2p.data"}
TOP = {"p2p.node", "p2p.sim", "p2p.cli"}
PICKLES = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
EXECUTES = {"eval", "exec", "recv_pyobj", "send_pyobj", "torch.load", "pickle.loads"}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str:
    """`p2p.net.wire` is in the room `p2p.net`, `topology.base` in `topology`."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "p2p" else parts[0]


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            yield from (f"{node.module}.{name.name}" if node.module == "p2p" else node.module for name in node.names)


def forbidden(module: str, imported: str) -> bool:
    room, target = room_of(module), room_of(imported)
    if imported.split(".")[0] not in ("p2p", "topology", "optim") or room == target:
        return False
    if room in BELOW_NODE:
        return target in TOP
    return room in ALLOWED and target not in ALLOWED[room]


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_imports_run_one_way(path: Path) -> None:
    module = module_of(path)
    assert [name for name in imports(path) if forbidden(module, name)] == []


@pytest.mark.parametrize(
    ("module", "imported", "wrong"),
    [
        ("topology.base", "optim.kinds", True),
        ("optim.gossip", "topology", False),
        ("optim.gossip", "p2p.errors", True),
        ("p2p.net.wire", "p2p.agent.view", True),
        ("p2p.agent.agent", "p2p.node", True),
        ("p2p.node", "p2p.agent.agent", False),
        ("p2p.launcher", "p2p.net.keys", True),
        ("p2p.data", "p2p.node", True),
        ("p2p.data", "p2p.agent.leases", False),
    ],
)
def test_the_rule_itself(module: str, imported: str, wrong: bool) -> None:
    assert forbidden(module, imported) is wrong


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_nothing_is_unpickled_or_evaluated(path: Path) -> None:
    assert not PICKLES & {name.split(".")[0] for name in imports(path)}
    called = {ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}
    assert not {name for name in called if name in EXECUTES or name.rpartition(".")[2] in ("recv_pyobj", "send_pyobj")}


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_the_library_never_prints(path: Path) -> None:
    if module_of(path) in {
        "p2p.cli",
        "p2p.topology_cli",
        "p2p.simulate_cli",
        "p2p.plan_cli",
        "p2p.zygote",
        "topology.analysis",
    }:  # what these do is to print
        return
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    assert not [call for call in calls if isinstance(call, ast.Name) and call.id == "print"]


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}; import sys; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    )


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import p2p", {"torch", "zmq", "networkx", "rich", "typer"}),
        ("import p2p.cli", {"torch", "networkx"}),
        ("import p2p.launcher", {"torch", "zmq", "networkx", "rich", "typer", "numpy"}),
        ("import p2p.ask", {"torch", "networkx", "rich"}),
        ("import topology", {"torch", "networkx"}),
    ],
)
def test_light_imports_stay_light(statement: str, absent: set[str]) -> None:
    assert not absent & loaded_by(statement)


def test_the_public_face_is_there() -> None:
    import p2p

    assert len(p2p.__all__) == len(set(p2p.__all__))
    assert {"join", "Node", "StepReport", "StarlingsError"} <= set(p2p.__all__)
    assert [name for name in p2p.__all__ if not hasattr(p2p, name)] == []


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short_and_say_how_to_run_them(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 150
    assert any(word in (ast.get_docstring(ast.parse(text)) or "") for word in ("starlings ", "python ")), "no command"
