"""The swarm's secret, what is derived from it, and the node's own identity.

The secret (32 random bytes) admits to the swarm: both CURVE key pairs and the swarm's id come from it, so an address
and the secret are all that a joiner needs. The identity (an Ed25519 key of the node's own) signs the node's record.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from operator import attrgetter
from pathlib import Path

import msgpack
import zmq
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey
from zmq.utils import z85

from p2p.errors import SecretError
from p2p.net.messages import Record

KEY_BYTES = 32
SIGNATURE_BYTES = 64


def new_secret() -> bytes:
    """32 random bytes."""
    return secrets.token_bytes(KEY_BYTES)


def read_secret(path: str | os.PathLike[str]) -> bytes:
    """The secret in a file of 64 hex digits; SecretError where there is none."""
    return _read(Path(path), "secret file")


def write_secret(path: str | os.PathLike[str], secret: bytes) -> None:
    """A new file, readable by its owner alone; SecretError where it exists already or can't be written."""
    _write(Path(path), "secret file", secret)


@dataclass(frozen=True, slots=True)
class CurvePair:
    """A CURVE key pair in Z85, as libzmq takes it."""

    public: bytes
    secret: bytes


def server_pair(secret: bytes) -> CurvePair:
    """The pair that every node of the swarm binds with."""
    return _curve_pair(secret, b"starlings-server")


def client_pair(secret: bytes) -> CurvePair:
    """The pair that every node of the swarm dials with, and the only one that is let in."""
    return _curve_pair(secret, b"starlings-client")


def swarm_id(secret: bytes | None, name: str = "") -> bytes:
    """16 bytes in each header: from the secret, or from a name where there is none."""
    return blake2b(b"" if secret else name.encode(), key=secret or b"", person=b"starlings-swarm", digest_size=16).digest()


def node_id(key: bytes) -> str:
    """32 hex digits: the hash of a node's public key."""
    return blake2b(key, digest_size=16).hexdigest()


def short(node: str) -> str:
    """The first ten digits of a node id, for people."""
    return node[:10]


class Identity:
    """A node's Ed25519 key; it stays the same over restarts from the same run directory."""

    def __init__(self, signing_key: SigningKey) -> None:
        self._signing_key = signing_key
        self.key = bytes(signing_key.verify_key)
        self.node = node_id(self.key)

    @classmethod
    def from_seed(cls, seed: bytes) -> Identity:
        """The identity that 32 bytes stand for."""
        return cls(SigningKey(seed))

    @classmethod
    def load_or_create(cls, path: str | os.PathLike[str]) -> Identity:
        """The identity kept in a file, readable by its owner alone; a new one where there is no file yet."""
        if not Path(path).exists():
            _write(Path(path), "identity file", secrets.token_bytes(KEY_BYTES))
        return cls.from_seed(_read(Path(path), "identity file"))

    def sign_record(self, record: Record) -> Record:
        """`record` with this node's key and signature."""
        keyed = replace(record, key=self.key)
        return replace(keyed, signature=self.sign(_signed_bytes(keyed)))

    def sign(self, data: bytes) -> bytes:
        """This node's signature of `data`, which should begin with what it is."""
        return self._signing_key.sign(data).signature


def verify_record(record: Record) -> bool:
    """Whether the record was signed by the key in it."""
    return verify(record.key, _signed_bytes(record), record.signature)


def verify(key: bytes, data: bytes, signature: bytes) -> bool:
    """Whether `data` was signed with this key (about 0.1 ms)."""
    if len(key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        VerifyKey(key).verify(data, signature)
    except BadSignatureError:
        return False
    return True


# --- inside ----------------------------------------------------------------------------------------------------

_SIGNED = attrgetter(*(field.name for field in fields(Record) if field.name != "signature"))


def _signed_bytes(record: Record) -> bytes:
    packed: bytes = msgpack.packb(("starlings record", *_SIGNED(record)))
    return packed


def _curve_pair(secret: bytes, label: bytes) -> CurvePair:
    hidden = z85.encode(blake2b(key=secret, person=label, digest_size=KEY_BYTES).digest())
    return CurvePair(zmq.curve_public(hidden), hidden)


def _write(path: Path, what: str, key: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise SecretError(f"{what} {path} exists already: remove it, or name another") from None
    except OSError as error:
        raise SecretError(f"{what} {path} can't be written: {error.strerror}") from None
    with open(descriptor, "w") as file:
        file.write(key.hex() + "\n")


def _read(path: Path, what: str) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(2 * KEY_BYTES + 3)  # no more than a key and a line's end
        key = bytes.fromhex(text.decode("ascii").strip())
    except OSError as error:
        raise SecretError(f"{what} {path} can't be read: {error.strerror}") from None
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise SecretError(f"{what} {path} doesn't hold a key: {2 * KEY_BYTES} hex digits are expected")
    return key
