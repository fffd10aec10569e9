"""The view: who lives, sorted, with a digest. Views agree eventually, never by a vote."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter

from topology.base import Member

_by_id = attrgetter("id")


@lru_cache(maxsize=16384)
def member_of(node: str, site: str, dial_only: bool) -> Member:
    """What a view holds of a node; speeds differ from observer to observer, so they stay out of it."""
    return Member(node, site, dial_only=dial_only)


@lru_cache(maxsize=16384)
def digest_of(member: Member) -> int:
    """64 bits of what a topology may see of one member."""
    text = f"{member.id}|{member.dial_only:d}|{member.site}"
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


class View:
    """Immutable; `with_` and `without` make the next one."""

    __slots__ = ("digest", "members")

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self.members: tuple[Member, ...] = tuple(sorted(members))
        self.digest = 0
        for member in self.members:
            self.digest ^= digest_of(member)

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, node: str) -> bool:
        return self._find(node)[1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, View) and self.members == other.members

    def __hash__(self) -> int:
        return self.digest

    def __repr__(self) -> str:
        return f"View({len(self)} members, {self.digest:016x})"

    def index(self, node: str) -> int:
        """The member's position; ValueError for a node that is not in the view."""
        position, found = self._find(node)
        if not found:
            raise ValueError(f"node {node[:10]} is not in this view of {len(self)} members")
        return position

    def after(self, node: str) -> Member | None:
        """The member that follows `node`, in a ring; `node` itself where it is the only one, None where there is none."""
        position, found = self._find(node)
        return self.members[(position + found) % len(self)] if self.members else None

    def with_(self, member: Member) -> View:
        """This view and `member`, in place of an older entry under the same id."""
        position, found = self._find(member.id)
        if found and self.members[position] == member:
            return self
        before, after = self.members[:position], self.members[position + found :]
        gone = digest_of(self.members[position]) if found else 0
        return _view((*before, member, *after), self.digest ^ gone ^ digest_of(member))

    def without(self, node: str) -> View:
        """This view without `node`; itself where `node` isn't in it."""
        position, found = self._find(node)
        if not found:
            return self
        members = self.members[:position] + self.members[position + 1 :]
        return _view(members, self.digest ^ digest_of(self.members[position]))

    def _find(self, node: str) -> tuple[int, bool]:
        position = bisect_left(self.members, node, key=_by_id)
        return position, position < len(self.members) and self.members[position].id == node


def _view(members: tuple[Member, ...], digest: int) -> View:
    view = View.__new__(View)
    view.members, view.digest = members, digest
    return view
