"""Quantities as people write them: 100mbit, 40ms, 100MB."""

from __future__ import annotations

import re

from p2p.errors import ConfigError

BITS = {"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
BYTES = {"b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9}


def bandwidth(text: str) -> float:
    """Bytes per second of `100mbit` or `10gbit`. Raises ConfigError."""
    return _quantity(text, BITS, "a bandwidth, as 100mbit or 10gbit") / 8


def size(text: str) -> float:
    """Bytes of `100MB`. Raises ConfigError."""
    return _quantity(text, BYTES, "a size, as 100MB")


def _quantity(text: str, units: dict[str, float], expected: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip().lower())
    if match is None or match[2] not in units or not float(match[1]):
        raise ConfigError(f"{text!r} is not {expected}")
    return float(match[1]) * units[match[2]]
