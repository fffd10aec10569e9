import json
import math
import os
from pathlib import Path

import pytest

import p2p.report
from p2p.report import BUFFER_LINES, FLUSH_INTERVAL, EventLog, Metrics, StepReport

REPORT = StepReport(
    step=3,
    round=2,
    partners=("aa", "bb"),
    sent=100,
    received=200,
    staleness=-1.0,
    wait=0.5,
    distance=0.25,
    skipped=("cc",),
    slow=(),
    mixing_interval=1.5,
)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_step_event_holds_the_report(tmp_path: Path, clock: Clock) -> None:
    log = EventLog(tmp_path / "events.jsonl", clock)
    log.step(REPORT, seconds=0.75)
    log.close()
    (event,) = lines(tmp_path / "events.jsonl")
    assert event == {
        "time": 100.0, "event": "step", "seconds": 0.75, "step": 3, "round": 2, "partners": ["aa", "bb"],
        "sent": 100, "received": 200, "staleness": -1.0, "wait": 0.5, "distance": 0.25, "skipped": ["cc"], "slow": [],
        "mixing_interval": 1.5, "far": [], "rate": 0.0,
    }  # fmt: skip


def test_flush_writes_at_most_four_times_a_second(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "events.jsonl"
    log = EventLog(path, clock)
    written = []
    for i in range(9):  # one event every 0.0625 s: 0.5 s
        log.write("log", step=i)
        log.flush()
        written.append(len(lines(path)))
        clock.now += FLUSH_INTERVAL / 4
    log.close()
    assert written == [1, 1, 1, 1, 5, 5, 5, 5, 9]


def test_a_clock_that_was_set_back_does_not_silence_the_log(tmp_path: Path, clock: Clock) -> None:
    log = EventLog(tmp_path / "events.jsonl", clock)
    log.write("a")
    log.flush()
    clock.now -= 3600
    log.write("b")
    log.flush()
    assert [event["event"] for event in lines(tmp_path / "events.jsonl")] == ["a", "b"]
    log.close()


def test_numbers_that_are_not_finite_become_null(tmp_path: Path, clock: Clock) -> None:
    log = EventLog(tmp_path / "events.jsonl", clock)
    log.write("log", loss=math.nan, nested={"x": [math.inf, 1.5]}, pair=(-math.inf, 2))
    log.close()
    (event,) = lines(tmp_path / "events.jsonl")
    assert event == {"time": 100.0, "event": "log", "loss": None, "nested": {"x": [None, 1.5]}, "pair": [None, 2]}


def test_the_buffer_is_bounded_and_says_what_it_dropped(tmp_path: Path, clock: Clock) -> None:
    log = EventLog(tmp_path / "events.jsonl", clock)
    for i in range(BUFFER_LINES + 3):
        log.write("step", step=i)
    log.close()
    events = lines(tmp_path / "events.jsonl")
    assert [event["step"] for event in events[:-1]] == list(range(3, BUFFER_LINES + 3))
    assert events[-1] == {"time": 100.0, "event": "dropped", "count": 3}


def test_the_log_appends_and_a_second_close_does_nothing(tmp_path: Path, clock: Clock) -> None:
    for _ in range(2):
        log = EventLog(tmp_path / "events.jsonl", clock)
        log.write("start")
        log.close()
        log.close()
        log.write("late")
        log.flush()
    assert [event["event"] for event in lines(tmp_path / "events.jsonl")] == ["start", "start"]


def test_no_path_means_no_file(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = EventLog(None, clock)
    log.step(REPORT, seconds=1.0)
    log.flush()
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_ends_the_log_not_the_training(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    log = EventLog(tmp_path / "events.jsonl", clock)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        log.write("step")
        log.flush()
    log.write("step")
    log.flush()
    log.close()
    assert lines(tmp_path / "events.jsonl") == []
    assert "event log closed" in caplog.text
    assert "No space left" in caplog.text


def test_each_flush_is_one_write_of_whole_lines(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks: list[bytes] = []
    write = os.write
    monkeypatch.setattr(p2p.report.os, "write", lambda fd, data: chunks.append(data) or write(fd, data))
    log = EventLog(tmp_path / "events.jsonl", clock)
    log.write("a")
    log.write("b")
    log.close()
    assert [chunk.count(b"\n") for chunk in chunks] == [2]
    assert chunks[0].endswith(b"\n")


def test_metrics_count_by_name_and_label() -> None:
    metrics = Metrics()
    metrics.add("messages_rejected", "checksum")
    metrics.add("messages_rejected", "checksum")
    metrics.add("messages_rejected", "schema")
    metrics.add("mean_moved", by=0.25)
    assert metrics.snapshot() == {
        ("messages_rejected", "checksum"): 2, ("messages_rejected", "schema"): 1, ("mean_moved", ""): 0.25,
    }  # fmt: skip
