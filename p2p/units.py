"""Quantities as people write them: 100mbit, 40ms, 100MB, 1h."""

from __future__ import annotations

import re

from p2p.errors import ConfigError

BITS = {"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
BYTES = {"b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9}
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def bandwidth(text: str) -> float:
    """Bytes per second of `100mbit` or `10gbit`. Raises ConfigError."""
    return _quantity(text, BITS, "a bandwidth, as 100mbit or 10gbit") / 8


def size(text: str) -> float:
    """Bytes of `100MB`. Raises ConfigError."""
    return _quantity(text, BYTES, "a size, as 100MB")


def duration(text: str) -> float:
    """Seconds of `150ms`, `60s`, `5min` or `1h`. Raises ConfigError."""
    return _quantity(text, SECONDS, "a time, as 150ms, 60s, 5min or 1h")


def moment(text: str) -> float:
    """The same, and `0s`. Raises ConfigError."""
    return 0.0 if re.fullmatch(r"0+(\.0+)?\s*(us|ms|s|min|h)", text.strip().lower()) else duration(text)


def _quantity(text: str, units: dict[str, float], expected: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip().lower())
    if match is None or match[2] not in units or not float(match[1]):
        raise ConfigError(f"{text!r} is not {expected}")
    return float(match[1]) * units[match[2]]
