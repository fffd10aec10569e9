"""What every test is held to: it leaves no thread, no process and no descriptor behind."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch
import zmq
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("starlings", derandomize=True, deadline=None)
settings.load_profile("starlings")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background jobs ignore Ctrl-C, and so would our nodes
    signal.signal(signal.SIGINT, signal.default_int_handler)

DEADLINE = 3.0
"""Seconds for what ends by itself: a thread on its last lines, libzmq's closed sockets."""


def _threads() -> set[str]:
    return {f"thread {thread.name}" for thread in threading.enumerate() if thread is not threading.main_thread()}


def _children() -> set[str]:
    """Child processes, zombies too."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ends while we look
            found |= {f"process {pid}" for pid in (task / "children").read_text().split()}
    return found


def _descriptors() -> set[str]:
    """Open files, pipes and sockets, with what they are."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the one that listed them
            continue
        if not target.startswith(("/dev/", "/proc/", "anon_inode:inotify")):
            found.add(f"descriptor {number} {target}")
    return found


WATCHED: tuple[Callable[[], set[str]], ...] = (
    (_threads, _children, _descriptors) if Path("/proc/self/task").exists() else (_threads,)
)


def _standing() -> set[str]:
    return set().union(*(look() for look in WATCHED))


@pytest.fixture(scope="session", autouse=True)
def _warm() -> None:
    """pyzmq starts a thread of its own, once per process, at the first message that it doesn't copy."""
    zmq.Frame(bytes(1 << 17), copy=False)


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fails the test that leaves something behind; once per process is no leak (torch's pools, caches)."""
    before = _standing()
    yield
    deadline = time.monotonic() + DEADLINE
    while (left := _standing() - before) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert not left, f"left behind: {', '.join(sorted(left))}"
