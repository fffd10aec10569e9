"""The chunks that are done: a set that only grows, small enough to travel whole with every word about work."""

from __future__ import annotations

WINDOW = 1 << 20
"""Chunks from the first unfinished to the last finished one, at most: 128 KiB as a bitmap. Bounds memory and messages."""


class Finished:
    """Whole numbers from 0: all below `floor`, and those above it whose bit is set. Merging is a union, in any order."""

    __slots__ = ("_bits", "floor")

    def __init__(self, floor: int = 0, bitmap: bytes = b"") -> None:
        self.floor = floor
        self._bits = int.from_bytes(bitmap, "little")
        self._rise()

    def __contains__(self, chunk: int) -> bool:
        return chunk < self.floor or bool(self._bits >> (chunk - self.floor) & 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Finished) and (self.floor, self._bits) == (other.floor, other._bits)

    __hash__ = None  # type: ignore[assignment]

    def add(self, chunk: int) -> bool:
        """False where it was there before."""
        if chunk in self:
            return False
        self._bits |= 1 << (chunk - self.floor)
        self._rise()
        return True

    def merge(self, other: Finished) -> bool:
        """True where this set grew."""
        before = self.floor, self._bits
        floor = max(self.floor, other.floor)
        self._bits = self._bits >> (floor - self.floor) | other._bits >> (floor - other.floor)
        self.floor = floor
        self._rise()
        return before != (self.floor, self._bits)

    def below(self, end: int) -> int:
        """How many are smaller than `end`."""
        if end <= self.floor:
            return end
        return self.floor + (self._bits & ((1 << (end - self.floor)) - 1)).bit_count()

    @property
    def bitmap(self) -> bytes:
        """Bit i (of byte i // 8, lowest first) stands for `floor` + i."""
        return self._bits.to_bytes((self._bits.bit_length() + 7) // 8, "little")

    def _rise(self) -> None:
        """The floor moves past what has become whole."""
        run = (~self._bits & (self._bits + 1)).bit_length() - 1  # ones at the low end
        self.floor += run
        self._bits >>= run
