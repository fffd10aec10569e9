"""Exactly one key is admitted, whatever is asked."""

import pytest

from p2p.net.zap import DOMAIN, admits

KEY = bytes(range(32))
GOOD = (b"1.0", b"1", DOMAIN, b"127.0.0.1", b"", b"CURVE", KEY)


def test_the_derived_key_is_admitted() -> None:
    assert admits(GOOD, KEY)


@pytest.mark.parametrize(
    "request_frames",
    [
        (), GOOD[:6], (*GOOD, b""), (*GOOD[:6], KEY[::-1]), (*GOOD[:6], b""), (b"2.0", *GOOD[1:]),
        (*GOOD[:2], b"", *GOOD[3:]), (*GOOD[:5], b"NULL", KEY), (*GOOD[:5], b"PLAIN", KEY),
    ],
)  # fmt: skip
def test_nothing_else_is(request_frames: tuple[bytes, ...]) -> None:
    assert not admits(request_frames, KEY)
