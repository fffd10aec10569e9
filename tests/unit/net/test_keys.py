"""The secret, what is derived from it, and signed records."""

import re
import stat
from dataclasses import fields, replace
from pathlib import Path

import pytest

from p2p.errors import SecretError
from p2p.net.keys import (
    Identity,
    client_pair,
    new_secret,
    node_id,
    read_secret,
    server_pair,
    swarm_id,
    verify_record,
    write_secret,
)
from p2p.net.messages import Record

SECRET = bytes(range(32))
RECORD = Record(b"", "tcp://10.0.0.1:7000", "tcp://10.0.0.1:7001", 5, 1, "zurich", False, b"c" * 16, b"")


def test_a_secret_comes_back_from_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    secret = new_secret()
    write_secret(tmp_path / "swarm.secret", secret)
    assert read_secret(tmp_path / "swarm.secret") == secret != new_secret()
    assert stat.S_IMODE((tmp_path / "swarm.secret").stat().st_mode) == 0o600


def test_a_secret_is_never_written_over(tmp_path: Path) -> None:
    write_secret(tmp_path / "s", SECRET)
    with pytest.raises(SecretError, match="exists already"):
        write_secret(tmp_path / "s", new_secret())
    assert read_secret(tmp_path / "s") == SECRET


@pytest.mark.parametrize("text", ["", "ab", "z" * 64, "ab" * 33, "é" * 32, "ab" * 31 + "\n\n"])
def test_a_file_that_holds_no_secret_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "s").write_text(text)
    with pytest.raises(SecretError, match="64 hex digits"):
        read_secret(tmp_path / "s")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SecretError, match=re.escape(f"secret file {tmp_path / 's'} can't be read: No such file")):
        read_secret(tmp_path / "s")
    with pytest.raises(SecretError, match="can't be written: No such file"):
        write_secret(tmp_path / "missing" / "s", SECRET)


def test_what_is_derived_is_fixed() -> None:
    assert server_pair(SECRET).public == b"t=I#NLJ)K#qx)KA^^n4lz5Uyd4$fBsnk)}?ctx[9"
    assert client_pair(SECRET).public == b"HMf!^HR^F1w(S0aiSbjP4q6PJF/P%RB%E?-qVsZl"
    assert swarm_id(SECRET).hex() == swarm_id(SECRET, "any name").hex() == "1c6f7210f5f335eba682e42c033c5f35"
    assert swarm_id(None, "digits").hex() == "6fb63353ddccbac413fdfa6f27df6d1c"
    assert node_id(SECRET) == "f39a2cad58411cd49f577e5086b8031f"


def test_all_that_is_derived_differs_by_secret_name_and_use() -> None:
    keys = [make(secret) for make in (server_pair, client_pair) for secret in (SECRET, bytes(32))]
    assert len({key.secret for key in keys} | {key.public for key in keys}) == 8
    assert len({swarm_id(SECRET), swarm_id(bytes(32)), swarm_id(None, "a"), swarm_id(None, "b")}) == 4


def test_an_identity_outlives_its_process(tmp_path: Path) -> None:
    first = Identity.load_or_create(tmp_path / "key")
    again = Identity.load_or_create(tmp_path / "key")
    other = Identity.load_or_create(tmp_path / "other")
    assert first.key == again.key != other.key
    assert first.node == node_id(first.key) == again.node
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


def test_a_signed_record_is_believed() -> None:
    identity = Identity.from_seed(SECRET)
    signed = identity.sign_record(RECORD)
    assert signed == replace(RECORD, key=identity.key, signature=signed.signature)
    assert verify_record(signed)


@pytest.mark.parametrize("name", [field.name for field in fields(Record)])
def test_a_record_changed_in_any_field_is_not(name: str) -> None:
    signed = Identity.from_seed(SECRET).sign_record(RECORD)
    value = getattr(signed, name)
    changed = {
        bool: lambda: not value,
        int: lambda: value + 1,
        str: lambda: value + "0",
        bytes: lambda: bytes([value[0] ^ 1]) + value[1:],
    }
    assert not verify_record(replace(signed, **{name: changed[type(value)]()}))


@pytest.mark.parametrize(
    "cut", [{"key": b""}, {"key": b"k" * 31}, {"key": b"\xff" * 32}, {"signature": b""}, {"signature": b"s" * 65}]
)
def test_keys_and_signatures_that_are_none(cut: dict[str, bytes]) -> None:
    assert not verify_record(replace(Identity.from_seed(SECRET).sign_record(RECORD), **cut))
