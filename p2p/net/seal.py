"""Seals: what one of two nodes marks, the other one can verify, and nobody else could have marked.

Each makes a key pair (X25519) for the occasion and tells the other its public half; from one's private and the other's
public half both derive the same key. Whose half it is must be known by other means: a signature. A mark is an AEGIS-128L tag,
a keyed hash that runs at 10 GB/s where the processor knows AES: hashing and signing instead would take as long as
decrypting. Unlike a signature it convinces only the two.
"""

from __future__ import annotations

import hmac
import os

from nacl.bindings import crypto_aead_aegis128l_encrypt, crypto_aead_aegis128l_KEYBYTES, crypto_aead_aegis128l_NPUBBYTES
from nacl.exceptions import CryptoError
from nacl.public import Box, PrivateKey, PublicKey

from p2p.errors import WireError

HALF_BYTES = 32


class Half:
    """One side of an agreement on a key."""

    def __init__(self) -> None:
        self._private = PrivateKey.generate()
        self.public = bytes(self._private.public_key)
        """For the other one."""

    def seal(self, public: bytes) -> Seal:
        """With the other one's half. Raises WireError for what is none."""
        try:
            if len(public) != HALF_BYTES:
                raise ValueError
            return Seal(Box(self._private, PublicKey(public)).shared_key())
        except (ValueError, CryptoError):
            raise WireError("key", f"{len(public)} bytes are no half of a key") from None


class Seal:
    """Of the two that know the key."""

    def __init__(self, key: bytes) -> None:
        self._key = key[:crypto_aead_aegis128l_KEYBYTES]

    def mark(self, head: bytes, payload: memoryview | bytes) -> bytes:
        """Of both, one after the other; a fresh nonce and the tag."""
        nonce = os.urandom(crypto_aead_aegis128l_NPUBBYTES)
        return nonce + self._tag(nonce, head, payload)

    def verify(self, mark: bytes, head: bytes, payload: memoryview | bytes) -> bool:
        """Whether the mark is of these two."""
        nonce, tag = mark[:crypto_aead_aegis128l_NPUBBYTES], mark[crypto_aead_aegis128l_NPUBBYTES:]
        return len(nonce) == crypto_aead_aegis128l_NPUBBYTES and hmac.compare_digest(tag, self._tag(nonce, head, payload))

    def _tag(self, nonce: bytes, head: bytes, payload: memoryview | bytes) -> bytes:
        """What encrypting nothing, with these as the data beside it, gives."""
        return crypto_aead_aegis128l_encrypt(b"", b"".join((head, payload)), nonce, self._key)
