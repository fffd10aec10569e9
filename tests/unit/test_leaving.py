"""Ways out of a swarm: twice, from threads, at a signal, with an exception; and what a node knows of who left."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

import p2p
from p2p.config import TEST
from p2p.notice import notice


@pytest.fixture(autouse=True)
def own_handler() -> Iterator[None]:
    """Closed in another thread, a node can't put the handler back."""
    yield
    notice.reset()


def join(*peers: str) -> p2p.Node:
    model = nn.Linear(3, 2)
    return p2p.join(model, torch.optim.SGD(model.parameters(), lr=0.1), peers=peers, listen="tcp://127.0.0.1:0", config=TEST)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)


def test_closing_from_several_threads_at_once_is_closing_once() -> None:
    node = join()
    threads = [threading.Thread(target=node.close) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    node.close()
    assert not node.leaving


def test_a_node_that_is_terminated_is_leaving_until_it_has_left() -> None:
    with join() as node:
        assert not node.leaving
        os.kill(os.getpid(), signal.SIGTERM)
        assert node.leaving
    assert not node.leaving
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_an_exception_leaves_the_swarm_and_stays_what_it_is() -> None:
    with join() as stays:
        goes = join(stays.address)
        until(lambda: stays.members.get(goes.id) == "alive")
        with pytest.raises(ZeroDivisionError), goes:
            raise ZeroDivisionError
        until(lambda: stays.members[goes.id] == "left")
        assert [line.split(" ", 1)[1] for line in stays.story(goes.id)] == [
            "unknown -> joining: introduced by itself",
            f"joining -> alive: its word at incarnation {_incarnation(goes, -1)}",
            f"alive -> left: its word at incarnation {_incarnation(goes, 0)}",
        ]
        assert stays.story("0" * 10) == []
    assert stays.story(goes.id) == []


def _incarnation(node: p2p.Node, later: int) -> int:
    """A node announces twice: that it takes part, and that it leaves."""
    return node._agent.who.incarnation + 2 + later
