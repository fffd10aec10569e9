"""Where a setting comes from: keyword, environment, default; and what is refused."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from p2p.config import LAN, LimitConfig
from p2p.errors import ConfigError, SecretError
from p2p.settings import Settings, resolve

KEY = bytes(range(32))


def test_the_defaults_found_a_swarm_on_loopback() -> None:
    assert resolve(environ={}) == Settings(
        peers=(),
        secret=None,
        listen="tcp://127.0.0.1:0",
        advertise=None,
        interface=None,
        dial_only=False,
        topology=None,
        algorithm=None,
        site="",
        wait_for=1,
        join_timeout=10.0,
        insecure=False,
        run_dir=None,
        index=0,
    )


def test_the_environment_sets_everything(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(KEY.hex())
    found = resolve(
        environ={
            "STARLINGS_PEERS": "tcp://a:1,tcp://b:2 tcp://a:1",
            "STARLINGS_SECRET": str(tmp_path / "secret"),
            "STARLINGS_LISTEN": "tcp://10.0.0.1:7000",
            "STARLINGS_ADVERTISE": "example.org",
            "STARLINGS_INTERFACE": "eth1",
            "STARLINGS_DIAL_ONLY": "1",
            "STARLINGS_TOPOLOGY": "ring",
            "STARLINGS_ALGORITHM": "gossip",
            "STARLINGS_SITE": "eu",
            "STARLINGS_WAIT_FOR": "4",
            "STARLINGS_JOIN_TIMEOUT": "2.5",
            "STARLINGS_INSECURE": "1",
            "STARLINGS_RUN_DIR": str(tmp_path),
            "STARLINGS_INDEX": "3",
        }
    )
    peers = ("tcp://a:1", "tcp://b:2")
    assert found == Settings(
        peers, KEY, "tcp://10.0.0.1:7000", "example.org", "eth1", True, "ring", "gossip", "eu", 4, 2.5, True, tmp_path, 3
    )


def test_a_keyword_wins_over_the_environment() -> None:
    environ = {"STARLINGS_PEERS": "tcp://a:1", "STARLINGS_TOPOLOGY": "ring", "STARLINGS_WAIT_FOR": "4"}
    found = resolve(peers="tcp://b:2, tcp://c:3", topology="complete", wait_for=2, environ=environ)
    assert (found.peers, found.topology, found.wait_for) == (("tcp://b:2", "tcp://c:3"), "complete", 2)


@pytest.mark.parametrize("empty", ["", [], ()])
def test_empty_peers_are_none(empty: str | list[str] | tuple[str, ...]) -> None:
    assert resolve(peers=empty, environ={"STARLINGS_PEERS": ""}).peers == ()


@pytest.mark.parametrize(
    ("settings", "listen"),
    [({"secret": KEY}, "tcp://*:0"), ({"insecure": True}, "tcp://*:0"), ({}, "tcp://127.0.0.1:0")],
)
def test_all_interfaces_only_where_it_is_safe_or_stated(settings: dict[str, object], listen: str) -> None:
    assert resolve(**settings, environ={}).listen == listen


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"STARLINGS_WAIT_FOR": "many"}, "STARLINGS_WAIT_FOR is 'many': a whole number is expected"),
        ({"STARLINGS_WAIT_FOR": "²"}, "STARLINGS_WAIT_FOR is '²'"),
        ({"STARLINGS_WAIT_FOR": "0"}, "wait_for is 0: a node waits for 1 member, itself, or for more"),
        ({"STARLINGS_JOIN_TIMEOUT": "soon"}, "STARLINGS_JOIN_TIMEOUT is 'soon': seconds are expected"),
        ({"STARLINGS_JOIN_TIMEOUT": "-1"}, "join_timeout is -1.0: seconds above 0 are expected"),
        ({"STARLINGS_JOIN_TIMEOUT": "nan"}, "join_timeout is nan"),
        ({"STARLINGS_INDEX": "-1"}, "STARLINGS_INDEX is '-1'"),
    ],
)
def test_what_cant_be_is_named(environ: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve(environ=environ)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(("secret", "said"), [(b"short", "5 bytes; 32 are expected"), ("/no/file", "can't be read")])
def test_a_secret_is_a_key_or_a_readable_file(secret: bytes | str, said: str) -> None:
    with pytest.raises(SecretError, match=said):
        resolve(secret=secret, environ={})


def test_links_are_set_in_the_configuration() -> None:
    environ = {
        "STARLINGS_CODEC": "auto,eu:us=low-rank:1",
        "STARLINGS_UPLINK": "20mbit",
        "STARLINGS_WAN": "eu:us=50mbit, eu:asia=8kbit",
    }
    config = resolve(environ=environ, join_timeout=3.0).configured(LAN)
    assert (config.exchange.codec, config.join.timeout) == ("auto,eu:us=low-rank:1", 3.0)
    assert config.limits == LimitConfig(2.5e6, math.inf, (("eu", "us", 6.25e6), ("eu", "asia", 1000.0)))
    given = replace(LAN, limits=LimitConfig(5.0), exchange=replace(LAN.exchange, codec="int8"))
    assert resolve(environ={}).configured(given) == given
    assert resolve(environ={}, codec="raw", downlink="80bit").configured(given).limits == LimitConfig(downlink=10.0)


@pytest.mark.parametrize(
    "wan", ["eu=50mbit", "eu:us", "eu:eu=50mbit", "eu:us:asia=50mbit", ":us=50mbit", "eu:us=5", "eu:us=0bit"]
)
def test_what_is_no_limit_between_sites_is_refused(wan: str) -> None:
    with pytest.raises(ConfigError, match=r"expected|bandwidth"):
        resolve(environ={}, wan=wan)
