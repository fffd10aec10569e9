"""Scenarios from text: of the command line, of a TOML file, or of Python; one grammar for all three.

    nodes = 64
    topology = ["ring", "one-peer-exponential"]         # several topologies, algorithms, codecs or seeds: each with each
    algorithm = ["async", "all-reduce", "parameter-server:sync=yes"]
    codec = ["raw", "bfloat16"]
    workload = "digits"                                 # consensus, quadratic
    split = "sorted"                                    # shuffled, dirichlet
    sites = 3
    lan = "10gbit,0.5ms"                                # bandwidth, and round trip
    wan = "100mbit,40ms"
    model-size = "100MB"
    step-time = "150ms"
    variation = 0.1
    straggler = ["1x5"]                                 # one node five times slower
    fault = ["kill:3@60s", "stall:2@30s+10s", "slow:4x10@0s", "cut:site1@60s+20s", "join@90s", "leave:5@120s"]
    until = "loss=0.1,time=1h,steps=1000"               # whichever is first; or accuracy=0.95
    seed = [0, 1, 2]

All of it can be left out; docs/simulate.md has the defaults.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from optim.codec import RAW
from p2p import units
from p2p.errors import ConfigError
from p2p.net.physics import Line
from p2p.sim.faults import Cut, Disconnect, Fault, Join, Kill, Leave, Slow, Stall
from p2p.sim.scenario import CENTRAL, Scenario, Straggler, Until

RUNS_MAX = 256
"""Runs of one comparison."""


def scenarios(settings: Mapping[str, object]) -> list[Scenario]:
    """All runs that the settings ask for; names as in the file, `-` or `_` in them. Raises ConfigError."""
    given = {name.replace("_", "-"): value for name, value in settings.items()}
    for name in given:
        if name not in READERS:
            near = difflib.get_close_matches(name, READERS, n=1)
            raise ConfigError(f"there is no setting {name!r}; {f'did you mean {near[0]}?' if near else ', '.join(READERS)}")
    fixed = dict(_field(name, value) for name, value in given.items() if name not in CHOICES)
    choices = [[_field(name, one) for one in _several(given[name])] for name in CHOICES if name in given]
    found = {scenario: None for picked in product(*choices) for scenario in [_made(fixed | dict(picked))]}
    if len(found) > RUNS_MAX:
        raise ConfigError(
            f"{len(found)} runs are more than {RUNS_MAX}; give fewer topologies, algorithms, codecs or seeds at once"
        )
    return list(found)


def read(path: Path) -> dict[str, Any]:
    """The settings in a TOML file. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror}; give the path of a scenario in TOML") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def _made(fields: dict[str, Any]) -> Scenario:
    """One run. All-reduce and the parameter server have no topology, and no codec."""
    central = fields.get("algorithm", "").partition(":")[0] in CENTRAL
    return Scenario(**fields | ({"topology": "", "codec": RAW.name} if central else {}))


CHOICES = ("topology", "algorithm", "codec", "seed")


# --- one value -------------------------------------------------------------------------------------------------------


def _field(name: str, value: object) -> tuple[str, Any]:
    field, reader = READERS[name]
    try:
        return field, reader(value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def _several(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{value!r} is not a name")
    return value.strip()


def _whole(low: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value.strip()):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise ConfigError(f"{value!r} is not a whole number from {low}")
        return value

    return read


def _number(value: object) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else -1.0
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e12:
        raise ConfigError(f"{value!r} is not a number from 0")
    return number


def _line(value: object) -> Line:
    """`100mbit`, or `100mbit,40ms` with the round trip."""
    bandwidth, comma, trip = _name(value).partition(",")
    return Line(units.moment(trip) / 2 if comma else 0.0, bandwidth=units.bandwidth(bandwidth))


def _stragglers(value: object) -> tuple[Straggler, ...]:
    """`1x5`: one node, five times slower."""
    return tuple(_straggler(_name(text)) for text in _words(value))


def _straggler(text: str) -> Straggler:
    match = re.fullmatch(r"(\d{1,6})x(\d+(?:\.\d+)?)", text)
    if match is None or not float(match[2]):
        raise ConfigError(f"{text!r} is not a straggler; give how many and how slow, as 1x5")
    return Straggler(int(match[1]), float(match[2]))


def _until(value: object) -> Until:
    """`loss=0.1,time=1h,steps=1000`; `|` may stand for the comma."""
    kinds: dict[str, Callable[[str], float]] = {
        "loss": _number, "accuracy": _number, "time": units.duration, "steps": _whole(1),
    }  # fmt: skip
    given: dict[str, Any] = {}
    for part in re.split(r"[,|]", _name(value)):
        name, equals, text = (piece.strip() for piece in part.partition("="))
        if not equals or name not in kinds or name in given:
            raise ConfigError(f"{part.strip()!r} ends no run; give loss=0.1, accuracy=0.95, time=1h or steps=1000, each once")
        given[name] = kinds[name](text)
    return Until(**given)


def _faults(value: object) -> tuple[Fault, ...]:
    return tuple(_fault(_name(text)) for text in _words(value))


def _words(value: object) -> Iterator[object]:
    """Each of a list; or those of a text, between commas."""
    for one in _several(value):
        yield from one.split(",") if isinstance(one, str) else [one]


GRAMMAR = "kill:3@60s, stall:3@60s+10s, leave:3@60s, disconnect:3@60s, slow:3x10@60s, cut:site1@60s+20s or join@60s"


def _fault(text: str) -> Fault:
    """`KIND[:WHAT]@TIME[+TIME]`, where WHAT is a node's number, a site, or for `slow` a node and a factor."""
    match = re.fullmatch(r"([a-z]+)(?::([\w.]+))?@([\w.]+)(?:\+([\w.]+))?", text)
    if match is None or match[1] not in FAULTS:
        raise ConfigError(f"{text!r} is no fault; give {GRAMMAR}")
    kind, what, at, rest = match.groups()
    takes_what, takes_rest, build = FAULTS[kind]
    if bool(what) != bool(takes_what) or bool(rest) != takes_rest or not re.fullmatch(takes_what, what or ""):
        raise ConfigError(f"{text!r} is no fault; give {GRAMMAR}")
    return build(what or "", units.moment(at), units.duration(rest) if rest else 0.0)


NODE, SITE, NODE_AND_FACTOR = r"\d{1,6}", r"\w+", r"\d{1,6}x\d+(\.\d+)?"

FAULTS: dict[str, tuple[str, bool, Callable[[str, float, float], Fault]]] = {
    "kill": (NODE, False, lambda node, at, _: Kill(int(node), at)),
    "stall": (NODE, True, lambda node, at, rest: Stall(int(node), at, rest)),
    "leave": (NODE, False, lambda node, at, _: Leave(int(node), at)),
    "disconnect": (NODE, False, lambda node, at, _: Disconnect(int(node), at)),
    "slow": (NODE_AND_FACTOR, False, lambda what, at, _: Slow(int(what.split("x")[0]), float(what.split("x")[1]), at)),
    "cut": (SITE, True, lambda site, at, rest: Cut((site,), at, rest)),
    "join": ("", False, lambda _, at, __: Join(at)),
}
"""What follows the kind, whether a second time does, and what it makes."""

READERS: dict[str, tuple[str, Callable[[object], Any]]] = {
    "nodes": ("nodes", _whole(1)),
    "topology": ("topology", _name),
    "algorithm": ("algorithm", _name),
    "codec": ("codec", _name),
    "workload": ("workload", _name),
    "split": ("split", _name),
    "sites": ("sites", _whole(1)),
    "lan": ("lan", _line),
    "wan": ("wan", _line),
    "model-size": ("model", lambda value: units.size(_name(value))),
    "step-time": ("step", lambda value: units.duration(_name(value))),
    "variation": ("variation", _number),
    "straggler": ("stragglers", _stragglers),
    "fault": ("faults", _faults),
    "until": ("until", _until),
    "seed": ("seed", _whole(0)),
}
"""By a setting's name: the scenario's field, and what reads it."""
