"""Names and parameters, and the fingerprint that catches other code under the same name."""

from collections.abc import Sequence
from pathlib import Path

import networkx
import pytest

import topology
from topology import FALLBACK, Member, Mixing, SpecError, Topology, TopologyError, fingerprint, from_networkx, make, spec_of

SPECS = [
    ("ring", "ring"),
    ("base:k=2", "base:k=2"),
    ("base:k=1", "base"),
    (" regular: degree=4 , seed=7", "regular:seed=7"),
    ("od-equidyn:eta=0.25", "od-equidyn:eta=0.25"),
    ("two-level:inside=complete,between=complete,every=4", "two-level:between=complete,every=4"),
    ("matcha:graph=(regular:degree=4,seed=7),budget=0.3", "matcha:graph=(regular:degree=4,seed=7),budget=0.3"),
]


@pytest.mark.parametrize(("spec", "canonical"), SPECS)
def test_a_spec_and_back(spec: str, canonical: str) -> None:
    made = make(spec)
    assert spec_of(made) == canonical
    assert make(canonical) == made


WRONG = [
    ("rign", "there is no topology 'rign'; did you mean ring"),
    ("qqqq", "there are: adaptive, alternating-exponential-ring"),
    ("base:k", "'base:k': can't use 'k'; base takes k, each once, as key=value"),
    ("base:j=2", "base takes k, each once, as key=value"),
    ("base:k=2,k=3", "can't use 'k=3'"),
    ("base:k=two", "'base:k=two': k must be int, not 'two'"),
    ("base:k=" + "9" * 40, "k must be int"),
    ("base:k=0", "base: k, the most partners in a round, must be from 1 to 1024, not 0"),
    ("epidemic-oracle:fanout=1000000", "fanout must be from 1 to 1024"),
    ("regular:degree=1", "regular: degree must be from 2"),
    ("ring:weights=heavy", "no weight rule 'heavy'; use one of metropolis, lazy, uniform, max-degree, best-constant"),
    ("matcha:graph=rign", "inside another topology only a built-in one can stand, not 'rign'"),
    ("two-level:every=1", "every, the rounds of a cycle of which one joins the sites, must be from 2"),
    ("file", "'file' needs path, as in file:path=..."),
    ("adaptive:links=x", "adaptive takes payload"),
    ("no.such.module:X", "there is no module 'no.such.module'"),
    ("topology.mixing:Mixng", "module 'topology.mixing' has no 'Mixng'; did you mean Mixing"),
    ("topology.mixing:TOLERANCE", "is a float; a topology is a name, a Topology, a function or a networkx graph"),
    ("ring:weights=" + "x" * 600, "at most 500 characters"),
]


@pytest.mark.parametrize(("spec", "message"), WRONG)
def test_a_wrong_spec_says_what_would_do(spec: str, message: str) -> None:
    with pytest.raises((SpecError, TopologyError)) as raised:
        make(spec)
    assert message in str(raised.value)


@pytest.mark.parametrize("spec", ["topology.families.static:Ring", "file:path=/etc/hostname", "os:getcwd", "mine"])
def test_a_peer_names_built_in_topologies_only(spec: str) -> None:
    with pytest.raises(SpecError):
        make(spec, builtin_only=True)
    assert make("base:k=3", builtin_only=True) == make("base:k=3")


def test_a_class_of_a_module_takes_parameters() -> None:
    assert make("topology.families.static:Torus:rows=2") == make("torus:rows=2")


class Mine(Topology):
    """A star, in other words than the built-in one."""

    def mixing(self, members: Sequence[Member], round: int) -> Mixing:
        return Mixing.undirected(len(members), [(0, i) for i in range(len(members))])


def test_registered_by_decorator() -> None:
    assert topology.register("mine-by-decorator")(Mine) is Mine
    assert isinstance(make("mine-by-decorator"), Mine)
    with pytest.raises(SpecError, match=r"taken by topology\.families\.static:Ring"):
        topology.register("ring")(Mine)
    with pytest.raises(SpecError, match="small letters"):
        topology.register("My Ring")


def test_registered_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plugged.py").write_text("from topology.families.static import Ring\nclass Plugged(Ring): pass\n")
    info = tmp_path / "plugged-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[starlings.topologies]\nplugged = plugged:Plugged\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry: topology.specs.Registry[Topology] = topology.specs.Registry(
        Topology,  # type: ignore[type-abstract]
        "topology",
        "starlings.topologies",
        "topology.families",
    )
    assert type(registry.make("plugged")).__name__ == "Plugged"
    assert "plugged" in registry.names()
    with pytest.raises(SpecError):
        registry.make("plugged", builtin_only=True)


def test_the_fingerprint_tells_topologies_apart() -> None:
    specs = ("ring", "ring:weights=lazy", "base", "base:k=2", "regular", "regular:seed=1", "hypercube", "one-peer-exponential")
    prints = [fingerprint(make(spec)) for spec in specs]
    assert len(set(prints)) == len(specs)
    assert {len(p) for p in prints} == {16}
    assert fingerprint(make("regular:seed=1")) == prints[5]


def test_the_fingerprint_sees_what_the_code_does_not_what_it_is_called() -> None:
    assert fingerprint(Mine()) == fingerprint(make("star"))


def test_the_fingerprint_of_a_graph_adds_its_own_number() -> None:
    ring, chain = (from_networkx(make_graph(12)) for make_graph in (networkx.cycle_graph, networkx.path_graph))
    assert fingerprint(ring) != fingerprint(chain)


def test_names_in_angle_brackets_are_for_reading() -> None:
    assert spec_of(from_networkx(networkx.petersen_graph())) == "<graph of 10 nodes>"
    assert spec_of(make(lambda members, round: Mixing.directed(len(members), {}))) == "<function <lambda>>"
    assert spec_of(Mine()).endswith("mine-by-decorator") or spec_of(Mine()).endswith(":Mine")
    assert spec_of(FALLBACK) == "fallback"


def test_the_catalog_says_what_each_takes_and_is() -> None:
    entries = topology.catalog()
    assert {*topology.names()} == {*entries}
    assert entries["od-equidyn"][0] == {"eta": "0.5", "seed": "0"}
    assert entries["file"][0] == {"path": ""}
    assert entries["adaptive"][0] == {"payload": "1e+08"}
    assert entries["exponential-matching"][1].startswith("Pairs 1, 2, 4 ... apart in turn")
    assert entries["chain"][1] == "A ring with one edge cut"
    assert all(summary for _, summary in entries.values())


def test_the_public_face() -> None:
    assert sorted(topology.__all__) == sorted(set(topology.__all__))
    assert all(hasattr(topology, name) for name in topology.__all__)
