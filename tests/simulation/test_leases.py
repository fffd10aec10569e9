"""Whole epochs in virtual time: nothing is lost, hardly anything done twice, everybody ends together."""

import random

import pytest

from p2p.sim.work import Job, WorkWorld


def churned(seed: int) -> WorkWorld:
    """Five nodes, two of which die and one of which may be slow, and one that joins; messages may be late or lost."""
    rng = random.Random(seed)
    job = Job(
        chunks=rng.choice([60, 90, 120]),
        batch=rng.choice([8, 16, 32]),
        prefetch=rng.choice([0, 0, 4]),
        epochs=rng.choice([1, 2]),
        seconds=rng.choice([0.01, 0.02]),  # a chunk takes longer than the interval of news
    )
    seconds = job.chunks * job.size * job.epochs * job.seconds / 5
    world = WorkWorld(
        job,
        5,
        seed=seed,
        slow={f"n{rng.randrange(5)}": rng.choice([1.0, 1.0, 2.0, 4.0])},
        variation=rng.choice([0.0, 0.1, 0.3]),
        loss=rng.choice([0.0, 0.0, 0.05]),
        latency=rng.choice([0.001, 0.02, 0.05]),
        detection=rng.choice([2.0, 5.0, 10.0]),
    )
    kills = {f"n{index}": rng.uniform(0.05, 0.95) * seconds for index in rng.sample(range(5), 2)}
    return world.run(kills, {"late": rng.uniform(0.1, 0.9) * seconds})


def check(seed: int) -> None:
    world = churned(seed)
    assert world.ledger.missing(world.job) == 0, f"seed {seed}"
    assert world.ledger.doubled() <= 4, f"seed {seed}"


@pytest.mark.parametrize("seed", range(25))
def test_no_sample_is_lost_and_at_most_two_chunks_per_death_are_done_twice(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_five_hundred_seeds() -> None:
    for seed in range(500):
        check(seed)


@pytest.mark.parametrize("prefetch", [0, 4])
@pytest.mark.parametrize("nodes", [1, 2, 5, 16])
def test_in_the_calm_every_sample_is_processed_once(nodes: int, prefetch: int) -> None:
    world = WorkWorld(Job(chunks=12 * nodes, prefetch=prefetch, epochs=3), nodes, variation=0.1).run()
    assert len(world.ledger.samples) == world.job.chunks * 16 * 3
    assert set(world.ledger.samples.values()) == {1}
    assert sum(worker.leases.duplicates for worker in world.workers.values()) == 0


@pytest.mark.parametrize("seed", range(4))
def test_with_one_slow_node_all_end_together_and_as_soon_as_can_be(seed: int) -> None:
    """One of four nodes is 4 times slower: the ideal is a speed of 3.25 normal nodes."""
    job = Job(chunks=480, epochs=3)
    world = WorkWorld(job, 4, seed=seed, slow={"n1": 4.0}, variation=0.1).run()
    ideal = job.chunks * job.size * job.seconds / 3.25
    began = 0.0
    for epoch in range(3):
        ends = [when for (_, number), when in world.ledger.ends.items() if number == epoch]
        assert (max(ends) - min(ends)) <= 0.15 * ideal
        assert max(ends) - began <= 1.1 * ideal
        began = max(ends)
    assert {worker.leases.plans for worker in world.workers.values()} == {1}  # when the slow one was known, and never again


def test_small_changes_of_speed_are_no_reason_for_another_plan() -> None:
    for seed in range(5):
        world = WorkWorld(Job(chunks=240, epochs=2), 4, seed=seed, variation=0.1).run()
        assert [worker.leases.plans for worker in world.workers.values()] == [0] * 4


def test_a_death_in_mid_epoch_costs_the_others_half_of_it_at_most() -> None:
    """30 chunks each; the dead node's last quarter falls to three others."""
    job = Job(chunks=120)
    calm = max(WorkWorld(job, 4).run().ledger.ends.values())
    for seed in range(5):
        world = WorkWorld(job, 4, seed=seed, detection=1.0).run({"n2": calm / 2})
        assert world.loop.time() <= 1.5 * calm


def test_a_joiner_gets_work_at_once() -> None:
    world = WorkWorld(Job(chunks=240), 3)
    world.run(joins={"late": 3.0})
    assert world.ledger.starts["late"] <= 3.0 + world.config.settle + 0.05
    assert world.ledger.ends["late", 0] == pytest.approx(max(world.ledger.ends.values()), rel=0.1)


def test_a_stalled_trainer_is_worked_around() -> None:
    """Its agent lives on; its chunks are taken up when its lease has run out."""
    world = WorkWorld(Job(chunks=60), 3, slow={"n1": 5000.0})
    world.run(but={"n1"})
    assert world.loop.time() < 80.0
    assert world.ledger.missing(world.job) == 0
