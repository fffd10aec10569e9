"""Where a setting comes from: the keyword, else the environment (the launcher sets it), else the swarm, else the default."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from p2p.config import Config, LimitConfig
from p2p.errors import ConfigError, SecretError
from p2p.net import keys
from p2p.units import bandwidth

TOPOLOGY = "one-peer-exponential"
ALGORITHM = "async"


@dataclass(frozen=True, slots=True)
class Settings:
    """All of them, resolved; `topology` and `algorithm` are None where the swarm's, or the default, counts."""

    peers: tuple[str, ...]
    secret: bytes | None
    listen: str
    advertise: str | None
    interface: str | None
    dial_only: bool
    topology: object | None
    algorithm: object | None
    site: str
    wait_for: int
    join_timeout: float
    insecure: bool
    run_dir: Path | None
    index: int
    resume: Path | None = None
    codec: str | None = None
    limits: LimitConfig | None = None

    def configured(self, config: Config) -> Config:
        """The configuration with these settings in it."""
        join = replace(config.join, timeout=self.join_timeout)
        exchange = replace(config.exchange, codec=self.codec or config.exchange.codec)
        return replace(config, join=join, exchange=exchange, limits=self.limits or config.limits)

    def file(self, name: str) -> Path | None:
        """A file of this node's own in the run directory, with its index for `{}`; None where there is none."""
        return self.run_dir / name.format(self.index) if self.run_dir else None


def resolve(
    *,
    peers: Sequence[str] | str = (),
    secret: bytes | str | os.PathLike[str] | None = None,
    listen: str | None = None,
    advertise: str | None = None,
    interface: str | None = None,
    dial_only: bool | None = None,
    topology: object | None = None,
    algorithm: object | None = None,
    site: str | None = None,
    wait_for: int | None = None,
    join_timeout: float | None = None,
    insecure: bool | None = None,
    resume: str | os.PathLike[str] | None = None,
    codec: str | None = None,
    uplink: str | None = None,
    downlink: str | None = None,
    wan: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Settings:
    """Keywords first, then `environ`. Raises ConfigError or SecretError for what can't be."""

    def given(name: str) -> str | None:
        return environ.get(f"STARLINGS_{name}") or None

    key = _secret(secret if secret is not None else given("SECRET"))
    open_to_all = insecure if insecure is not None else given("INSECURE") == "1"
    everywhere = "tcp://*:0" if key or open_to_all else "tcp://127.0.0.1:0"
    addresses = _addresses(peers) or _addresses(given("PEERS") or "")
    run_dir, resumed = given("RUN_DIR"), resume or given("RESUME")
    return Settings(
        peers=addresses,
        secret=key,
        listen=listen or given("LISTEN") or everywhere,
        advertise=advertise or given("ADVERTISE"),
        interface=interface or given("INTERFACE"),
        dial_only=dial_only if dial_only is not None else given("DIAL_ONLY") == "1",
        topology=topology if topology is not None else given("TOPOLOGY"),
        algorithm=algorithm if algorithm is not None else given("ALGORITHM"),
        site=site if site is not None else given("SITE") or "",
        wait_for=_members(wait_for if wait_for is not None else _whole("WAIT_FOR", given("WAIT_FOR") or "1")),
        join_timeout=_timeout(
            join_timeout if join_timeout is not None else _seconds("JOIN_TIMEOUT", given("JOIN_TIMEOUT") or "10")
        ),
        insecure=open_to_all,
        run_dir=Path(run_dir) if run_dir else None,
        index=_whole("INDEX", given("INDEX") or "0"),
        resume=Path(resumed) if resumed else None,
        codec=codec or given("CODEC"),
        limits=limits(uplink or given("UPLINK"), downlink or given("DOWNLINK"), wan or given("WAN")),
    )


def _secret(secret: bytes | str | os.PathLike[str] | None) -> bytes | None:
    """The key itself, or the path of its file."""
    if secret is None or isinstance(secret, bytes):
        if secret is not None and len(secret) != keys.KEY_BYTES:
            raise SecretError(f"a secret of {len(secret)} bytes; {keys.KEY_BYTES} are expected, or the path of a file")
        return secret
    return keys.read_secret(secret)


def _addresses(peers: Sequence[str] | str) -> tuple[str, ...]:
    """Each address once; a string may hold several, between commas or spaces."""
    found = peers.replace(",", " ").split() if isinstance(peers, str) else peers
    return tuple(dict.fromkeys(found))


def limits(uplink: str | None, downlink: str | None, wan: str | None) -> LimitConfig | None:
    """Of `100mbit`, `1gbit` and `eu:us=50mbit,...`; None where nothing is set: the configuration's count then.

    Raises ConfigError.
    """
    if not (uplink or downlink or wan):
        return None
    up, down = (bandwidth(text) if text else math.inf for text in (uplink, downlink))
    return LimitConfig(up, down, tuple(map(_between, (wan or "").replace(",", " ").split())))


def _between(text: str) -> tuple[str, str, float]:
    """Of `eu:us=50mbit`."""
    sites, equals, rate = text.partition("=")
    here, colon, there = sites.partition(":")
    if not (equals and colon and here and there) or here == there or ":" in there:
        raise ConfigError(f"{text!r}: SITE:OTHER=BANDWIDTH is expected, as eu:us=50mbit")
    return here, there, bandwidth(rate)


def _members(wait_for: int) -> int:
    if wait_for < 1:
        raise ConfigError(f"wait_for is {wait_for}: a node waits for 1 member, itself, or for more")
    return wait_for


def _timeout(seconds: float) -> float:
    if not 0 < seconds < math.inf:
        raise ConfigError(f"join_timeout is {seconds}: seconds above 0 are expected")
    return seconds


def _whole(name: str, text: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"STARLINGS_{name} is {text!r}: a whole number is expected")
    return int(text)


def _seconds(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"STARLINGS_{name} is {text!r}: seconds are expected") from None
