"""No way in: the right kind of error, in one line that says what, where and what to do, and nothing is left open."""

import gc
import re
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from torch import nn

import p2p
import topology
from p2p.config import TEST, Config
from topology import Mixing, Topology

SECRET, OTHER = bytes(range(32)), bytes(range(1, 33))
QUICK = {"config": TEST, "join_timeout": 3.0}


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    yield
    gc.collect()


def join(model: nn.Module | None = None, optimizer: str = "SGD", **settings: object) -> p2p.Node:
    model = model or network()
    made = getattr(torch.optim, optimizer)(model.parameters(), lr=0.1)
    return p2p.join(model, made, **({"listen": "tcp://127.0.0.1:0", **QUICK} | settings))


def network(width: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(4, width), nn.Linear(width, 2))


@pytest.fixture
def founder() -> Iterator[p2p.Node]:
    with join(secret=SECRET) as node:
        yield node


def refused(error: type[Exception], said: str, **settings: object) -> None:
    began = time.monotonic()
    with pytest.raises(error) as refusal:
        join(**settings)
    assert refusal.type is error
    assert re.search(said, str(refusal.value)), str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("address", "error", "said"),
    [
        ("10.0.0.7:7000", p2p.JoinError, "'10.0.0.7:7000' is no address: tcp://host:port is expected"),
        ("tcp://127.0.0.1:0", p2p.JoinError, "can't be dialled: a wildcard is for listening only"),
        ("tcp://192.0.2.1:7000", p2p.SecretError, r"can't dial tcp://192\.0\.2\.1:7000 without a secret"),
    ],
)
def test_an_address_that_cant_be_is_refused_at_once(address: str, error: type[Exception], said: str) -> None:
    refused(error, said, peers=[address], join_timeout=60.0)


def test_nothing_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        refused(p2p.JoinError, f"no way into the swarm: {address}: connection refused", peers=[address], join_timeout=1.0)


def test_each_address_has_its_reason(founder: p2p.Node) -> None:
    said = r"tcp://127\.0\.0\.1:1: connection refused; nowhere: 'nowhere' is no address"
    refused(p2p.JoinError, said, peers=["tcp://127.0.0.1:1", "nowhere"], join_timeout=1.0)
    with join(secret=SECRET, peers=["tcp://127.0.0.1:1", "nowhere", founder.address]) as node:
        assert len(node._agent.transport._dialled) <= 2  # the dead one is not dialled for ever


def test_a_wrong_secret(founder: p2p.Node) -> None:
    refused(p2p.SecretError, f"{founder.address}: wrong secret", peers=[founder.address], secret=OTHER)


def test_no_secret_where_one_is_wanted(founder: p2p.Node) -> None:
    refused(p2p.SecretError, f"{founder.address}: it wants a secret", peers=[founder.address])


def test_a_secret_where_none_is_wanted() -> None:
    with join() as open_to_all:  # who hangs up first decides what can be said
        refused(p2p.SecretError, f"{open_to_all.address}: (it has no|wrong) secret", peers=[open_to_all.address], secret=SECRET)


@pytest.mark.parametrize("listen", ["tcp://*:0", "tcp://0.0.0.0:7000", "tcp://192.0.2.1:0"])
def test_all_interfaces_want_a_secret(listen: str) -> None:
    refused(p2p.SecretError, "can't listen on .* without a secret: only loopback addresses", listen=listen)


def test_a_port_in_use(founder: p2p.Node) -> None:
    refused(p2p.ListenError, "the port is in use; choose another, or port 0 for any", listen=founder.address)


def test_another_model_names_the_first_tensor_with_both_shapes(founder: p2p.Node) -> None:
    said = (
        r"the swarm trains another model: it has 0\.weight: float32 \(8, 4\), parameter; "
        r"this node has 0\.weight: float32 \(9, 4\), parameter"
    )
    refused(p2p.ContractError, said, peers=[founder.address], secret=SECRET, model=network(9))


def test_a_longer_model_names_what_the_swarm_lacks(founder: p2p.Node) -> None:
    longer = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(2, 2))
    said = r"it has no tensor 4: 4 in all; this node has 2\.weight: float32 \(2, 2\)"
    refused(p2p.ContractError, said, peers=[founder.address], secret=SECRET, model=longer)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"optimizer": "Adam"}, "the swarm uses another optimizer: 'SGD'; this node 'Adam'"),
        ({"topology": "ring"}, "the swarm uses another topology: 'one-peer-exponential'; this node 'ring'"),
        ({"algorithm": "gossip"}, "the swarm uses another algorithm: 'async'; this node 'gossip'"),
        ({"config": replace(TEST, exchange=replace(TEST.exchange, block_bytes=1024))}, "another size of blocks"),
    ],
)
def test_another_contract(founder: p2p.Node, settings: dict[str, object], said: str) -> None:
    refused(p2p.ContractError, said, peers=[founder.address], secret=SECRET, **settings)
    assert list(founder.members.values()) == ["alive"]  # nobody heard of who was refused


class Ring(Topology):
    """A ring, whose weights differ from node to node where the code does."""

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def mixing(self, members: Sequence[topology.Member], round: int) -> Mixing:
        n = len(members)
        arcs = {(i, j): self.weight for i in range(n) for j in {(i - 1) % n, (i + 1) % n} - {i}}
        return Mixing.directed(n, arcs)


def test_a_topology_of_that_name_with_other_code() -> None:
    with join(topology=Ring(0.25)) as node:
        refused(p2p.ContractError, "with other rows: the code differs", peers=[node.address], topology=Ring(0.3))
        with join(peers=[node.address], topology=Ring(0.25)) as joiner:
            assert joiner.id != node.id


class Wrong(Topology):
    """Returns what it is given."""

    def __init__(self, rows: Sequence[dict[int, float]]) -> None:
        self.rows = rows

    def refuses(self, n: int) -> str | None:
        return None if n == len(self.rows) else f"for {len(self.rows)} members, not {n}"

    def mixing(self, members: Sequence[topology.Member], round: int) -> Mixing:
        return Mixing(self.rows)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{0: 0.5, 1: 0.5}, {1: 0.9}], r"row 1 \(\w+\) sums to 0\.9, not 1"),
        (
            [{0: 1.5, 1: -0.5}, {0: -0.5, 1: 1.5}],
            r"row 0 \(\w+\): its weight for 1 \(\w+\) is -0\.5; weights must be 0 or more",
        ),
        ([{0: 0.5, 7: 0.5}, {1: 1.0}], r"row 0 \(\w+\) names member 7, but members are numbered 0 to 1"),
    ],
)
def test_a_wrong_row_is_named(rows: Sequence[dict[int, float]], said: str) -> None:
    refused(p2p.ConfigError, said, topology=Wrong(rows))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"topology": "one-peer-exponental"}, "did you mean one-peer-exponential"),
        ({"topology": "nomodule:Lattice"}, "there is no module 'nomodule'"),
        ({"topology": "math:pi"}, "math:pi|float"),
        ({"algorithm": "gosip"}, "there is no algorithm 'gosip'; did you mean gossip"),
        ({"algorithm": "gossip:deadline=never"}, "deadline"),
    ],
)
def test_an_unknown_name_offers_the_nearest(settings: dict[str, object], said: str) -> None:
    refused(p2p.ConfigError, said, **settings)


def test_a_member_that_never_answers() -> None:
    """Something listens there, and says nothing."""
    config: Config = TEST
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        refused(p2p.JoinError, f"{address}: (no answer|timed out)", peers=[address], config=config, join_timeout=2.5)
