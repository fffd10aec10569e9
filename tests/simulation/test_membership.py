"""Swarms of membership machines in virtual time: deaths, stalls, partitions, restarts. `SEEDS=200` runs more of each."""

import os
from dataclasses import replace

import pytest

from p2p.agent.records import State, identify
from p2p.config import LAN
from p2p.net.messages import Gossip, News, Phase, Sync
from tests.simulation.membership_world import EPOCH, World, make_record

MORE = int(os.environ.get("SEEDS", "0"))


def seeds(few: int) -> range:
    return range(MORE or few)


def settled(seed: int, count: int, **network: float) -> tuple[World, list[str]]:
    world = World(seed, **network)
    nodes = world.swarm(count)
    for _ in range(10):  # where gossip misses one, push-pull finds it
        world.run(20 + world.rng.random())
        if world.agreed():
            return world, nodes
    raise AssertionError("no common view")


def declared(world: World, node: str) -> bool:
    return bool(world.changes) and world.changes[-1][2].node == node and world.changes[-1][2].after is State.DEAD


@pytest.mark.parametrize("seed", seeds(10))
def test_a_death_among_64_is_seen_within_15_seconds(seed: int) -> None:
    world, nodes = settled(seed, 64)
    world.kill(nodes[32])
    assert world.run(60, lambda: declared(world, nodes[32])) <= 15
    world.run(3)
    assert world.agreed()
    assert world.false_deaths() == []
    world.validate()


def test_in_the_calm_at_most_three_messages_a_second() -> None:
    world, _ = settled(1, 64)
    before = world.sent.total()
    world.run(120)
    assert (world.sent.total() - before) / 120 / 64 <= 3
    assert len(world.changes) == 64 * 63
    assert world.refusals == []
    assert all(machine.health == 0 for machine in world.machines.values())


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("count", [8, 32])
def test_stalls_of_2_to_6_seconds_kill_nobody(seed: int, count: int) -> None:
    world, nodes = settled(seed, count, loss=0.01)

    def stall_again(node: str) -> None:
        seconds = world.rng.uniform(2, 6)
        world.stall(node, seconds)
        world.at(world.now + seconds + world.rng.expovariate(1 / 20), lambda: stall_again(node))

    for node in world.rng.sample(nodes, max(1, count // 10)):
        world.at(world.now + world.rng.uniform(0, 20), lambda node=node: stall_again(node))
    world.run(200)
    assert any(change.after is State.SUSPECT for _, _, change in world.changes)
    assert world.false_deaths() == []
    world.validate()


@pytest.mark.parametrize("seed", seeds(5))
def test_a_minute_of_standing_still_is_death_and_waking_is_coming_back(seed: int) -> None:
    world, nodes = settled(seed, 4)
    world.stall(nodes[1], 60)
    world.run(59)
    assert world.states(nodes[1]) == [State.DEAD] * 3
    assert world.run(30, world.agreed) < 5
    world.run(30)
    assert world.agreed()
    assert {change.node for _, _, change in world.false_deaths()} == {nodes[1]}, "who slept accuses nobody"


@pytest.mark.parametrize("seed", seeds(10))
def test_a_partition_heals_to_one_view(seed: int) -> None:
    world, nodes = settled(seed, 6)
    world.partition(nodes[:3], nodes[3:])
    world.run(30)
    assert {len(machine.view) for machine in world.machines.values()} == {3}
    world.partition()
    assert world.run(60, world.agreed) <= 30
    world.run(60)
    assert world.agreed()
    world.validate()


@pytest.mark.parametrize("seed", seeds(3))
def test_an_hour_apart_heals_as_well(seed: int) -> None:
    world, nodes = settled(seed, 2)
    world.partition(nodes[:1], nodes[1:])
    world.run(3600)
    world.partition()
    assert world.run(60, world.agreed) <= 30


@pytest.mark.parametrize(("count", "pause"), [(6, 3.0), (6, 30.0), (32, 0.5)])
def test_a_rolling_restart_leaves_right_views(count: int, pause: float) -> None:
    world, nodes = settled(5, count)
    for index, node in enumerate(nodes):
        world.kill(node)
        world.run(pause)
        assert world.add(index, nodes[(index + 1) % count]) == node
        world.run(1)
    assert world.run(30, world.agreed) <= 5
    world.run(60)
    assert world.agreed()
    assert all(machine.record.incarnation > EPOCH for machine in world.machines.values())


def test_a_mass_restart_with_stale_incarnations_leaves_nobody_dead() -> None:
    world, nodes = settled(3, 16)
    for node in nodes[1:]:
        world.kill(node)
        world.hint(nodes[0], node)
    world.run(15)
    assert len(world.machines[nodes[0]].view) == 1
    for index in range(1, 16):
        world.add(index, nodes[0], incarnation=EPOCH - 5)
    assert world.run(30, world.agreed) <= 5


def test_ghosts_do_not_return_after_reaping() -> None:
    config = replace(LAN.membership, tombstone=300.0)
    world = World(4, config)
    nodes = world.swarm(8)
    world.run(20)
    world.kill(nodes[7])
    world.run(250)
    late = world.add(8, nodes[0])  # comes while the tombstones stand
    world.run(400)
    assert all(nodes[7] not in machine.members for machine in world.machines.values())
    assert late in world.machines[nodes[0]].view
    world.call(nodes[0], world.machines[nodes[0]].meet(News((make_record(7),)), world.now))  # somebody still lists it
    world.run(60)
    assert all(s in (State.DEAD, None) for s in world.states(nodes[7]))
    world.validate()


def test_a_leaver_is_left_and_not_dead() -> None:
    world, nodes = settled(2, 16)
    world.call(nodes[5], world.machines[nodes[5]].leave(world.now))
    world.run(1.0)
    world.kill(nodes[5])
    assert world.states(nodes[5]) == [State.LEFT] * 15
    world.run(60)
    assert world.states(nodes[5]) == [State.LEFT] * 15
    world.add(5, nodes[0])
    assert world.run(30, world.agreed) <= 3


def test_a_lost_connection_is_a_hint_that_the_living_refute() -> None:
    world, nodes = settled(2, 8)
    world.hint(nodes[0], nodes[3])
    assert world.machines[nodes[0]].members[nodes[3]].state is State.SUSPECT
    assert world.run(30, lambda: world.states(nodes[3]) == [State.ALIVE] * 7) < 1
    world.run(60)
    assert world.false_deaths() == []
    assert "connection lost: closed" in " ".join(world.machines[nodes[0]].story(nodes[3]))


def test_whoever_loses_all_others_does_not_flood_them() -> None:
    world, nodes = settled(2, 128)
    lonely = nodes[9]
    world.partition([lonely], [node for node in nodes if node != lonely])
    world.run(20)  # its health sinks with each probe
    machine = world.machines[lonely]
    assert machine.health >= 4
    before = world.sent[lonely]
    for node in nodes:
        if node != lonely:
            world.hint(lonely, node)
    accused = sum(info.state is State.SUSPECT for info in machine.members.values())
    assert accused < 20, "at most one accusation per probe interval"
    assert world.sent[lonely] - before < 20
    world.partition()
    assert world.run(60, world.agreed) <= 40
    assert len([change for _, _, change in world.false_deaths() if change.node != lonely]) < 20


def test_gossip_ends_by_itself() -> None:
    world, nodes = settled(6, 32)
    gossip = []
    original = world._transmit
    world._transmit = lambda s, t, m: (gossip.append(m) if isinstance(m, Gossip) else None, original(s, t, m))[1]
    world.call(nodes[0], world.machines[nodes[0]].announce(now=world.now, phase=Phase.ARRIVED))
    world.run(10)
    assert all(machine.members[nodes[0]].record.phase == Phase.ARRIVED for machine in world.machines.values())
    assert len(gossip) <= 32 * 8  # each at most as often as news is retransmitted
    gossip.clear()
    world.run(10)
    assert gossip == []


def test_dial_only_nodes_are_seen_through_the_connections_that_they_opened() -> None:
    world = World(8)
    nodes = [world.add(0)] + [world.add(index, identify(make_record(0).key), dial_only=index < 3) for index in range(1, 8)]
    opened: set[tuple[str, str]] = set()
    original, shut = world._transmit, set(nodes[1:3])

    def transmit(sender: str, target: str, message: object) -> None:
        if target in shut and (target, sender) not in opened:
            return
        opened.add((sender, target))
        original(sender, target, message)

    world._transmit = transmit
    world.run(60)
    assert world.agreed()
    assert world.false_deaths() == []
    world.kill(nodes[1])
    world.run(60)
    assert world.states(nodes[1]) == [State.DEAD] * 7
    world.validate()


def test_a_large_swarm_syncs_in_pieces() -> None:
    world = World(1)
    nodes = world.swarm(2)
    big = [make_record(n, control="tcp://" + "x" * 250, data="tcp://" + "y" * 250) for n in range(10, 1000)]
    for start in range(0, len(big), 200):
        world.call(nodes[0], world.machines[nodes[0]].meet(News(tuple(big[start : start + 200])), world.now))
    pieces = []
    original = world._transmit
    world._transmit = lambda s, t, m: (pieces.append(m) if isinstance(m, Sync) else None, original(s, t, m))[1]
    joiner = world.add(2, nodes[0])
    assert len(world.machines[joiner].members) < 500
    world.call(nodes[0], world.machines[nodes[0]].handle(joiner, Sync(News(), reply=True), world.now))
    world.run(0.1)
    assert len(world.machines[joiner].members) == 993
    assert len(pieces) > 3


def test_the_same_seed_is_the_same_run() -> None:
    def run() -> list[object]:
        world, nodes = settled(9, 16, loss=0.05)
        world.kill(nodes[3])
        world.run(30)
        return [*world.changes, world.sent]

    assert run() == run()
