"""The view: sorted, immutable, with a digest that doesn't depend on the way there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p.agent.view import View, member_of
from topology.base import Member

IDS = st.sampled_from([f"{number:032x}" for number in range(12)])
MEMBERS = st.builds(member_of, IDS, st.sampled_from(["", "oslo"]), st.booleans())


def unique(members: list[Member]) -> list[Member]:
    return list({member.id: member for member in members}.values())


@given(st.lists(MEMBERS), st.randoms())
def test_order_of_arrival_does_not_matter(members: list[Member], random: object) -> None:
    members = unique(members)
    grown = View()
    for member in members:
        grown = grown.with_(member)
    assert grown == View(reversed(members))
    assert grown.digest == View(members).digest
    assert [member.id for member in grown.members] == sorted(member.id for member in members)


@given(st.lists(MEMBERS), MEMBERS)
def test_what_comes_and_goes_leaves_no_trace(members: list[Member], guest: Member) -> None:
    before = View(member for member in unique(members) if member.id != guest.id)
    after = before.with_(guest).without(guest.id)
    assert (after, after.digest, hash(after)) == (before, before.digest, hash(before))


@given(st.lists(MEMBERS))
def test_index_finds_everybody(members: list[Member]) -> None:
    view = View(unique(members))
    assert len(view) == len(view.members)
    for position, member in enumerate(view.members):
        assert view.index(member.id) == position
        assert member.id in view


def test_a_changed_member_replaces_the_old_entry() -> None:
    view = View([member_of("a", "", False), member_of("b", "", False)])
    moved = view.with_(member_of("a", "oslo", False))
    assert len(moved) == 2
    assert moved.members[0].site == "oslo"
    assert moved.digest not in (view.digest, 0)
    assert moved.with_(member_of("a", "", False)).digest == view.digest


def test_the_same_member_again_is_the_same_view() -> None:
    view = View([member_of("a", "", False)])
    assert view.with_(member_of("a", "", False)) is view
    assert view.without("b") is view


@pytest.mark.parametrize("changed", [("b", "", False), ("a", "x", False), ("a", "", True)])
def test_the_digest_sees_id_site_and_reach(changed: tuple[str, str, bool]) -> None:
    assert View([member_of(*changed)]).digest != View([member_of("a", "", False)]).digest


def test_a_stranger_has_no_index() -> None:
    with pytest.raises(ValueError, match="node cafe is not in this view of 0 members"):
        View().index("cafe")
