"""Work shared out among real processes, some of which are killed."""

import time
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.work_swarm import Job, WorkSwarm, wait

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_five_processes_two_killed_one_joining(tmp_path: Path) -> None:
    job = Job(length=4800, chunk=16, batch=16, pace=0.025, wait_for=5)  # long enough for the joiner to start in
    with WorkSwarm(tmp_path, job) as swarm:
        first = swarm.start(5)
        wait(lambda: len(first[1].seen) > 240, first[1])
        first[1].kill()
        swarm.start(1, wait_for=1)
        wait(lambda: len(first[3].seen) > 600, first[3])
        first[3].kill()
        swarm.finish()
        assert sorted(swarm.counts) == list(range(4800))
        assert swarm.doubled() <= 4 * 16
        assert len(swarm.workers[5].seen) > 0


@pytest.mark.parametrize("workers", [0, 2])
def test_in_the_calm_each_sample_is_processed_once_also_over_a_resume(tmp_path: Path, workers: int) -> None:
    job = Job(length=480, pace=0.001, workers=workers, checkpoint=str(tmp_path / "state.json"))
    with WorkSwarm(tmp_path, job) as swarm:
        swarm.start(1, stop=13)
        swarm.finish()
    (tmp_path / "again").mkdir()
    with WorkSwarm(tmp_path / "again", job) as again:
        again.start(1)
        again.finish()
        assert swarm.counts + again.counts == Counter(range(480))


def test_a_global_batch_stays_whole_after_a_death(tmp_path: Path) -> None:
    job = Job(length=40_000, chunk=100, pace=0.001, wait_for=3, global_="global:97", micro=20)
    with WorkSwarm(tmp_path, job) as swarm:
        workers = swarm.start(3)
        wait(lambda: len(workers[2].seen) > 1500, workers[2])
        workers[2].kill()
        killed = time.monotonic()
        wait(lambda: workers[0].lines[-1]["t"] > killed + 8, workers[0])
        before = [[len(line["seen"]) for line in w.lines if "seen" in line and line["t"] < killed] for w in workers]
        after = [[len(line["seen"]) for line in w.lines if "seen" in line and line["t"] > killed + 6] for w in workers[:2]]
    assert {sum(parts) for parts in zip(*before, strict=False)} == {97}
    assert {sum(parts) for parts in zip(*after, strict=False)} == {97}
