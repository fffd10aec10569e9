"""SIGTERM while nodes are open: what a loop sees, what ends it, and what of the user's own handlers stays."""

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from p2p import notice as module
from p2p.notice import Notice


@pytest.fixture
def notice(monkeypatch: pytest.MonkeyPatch) -> Iterator[Notice]:
    monkeypatch.setattr(module, "GRACE", 0.1)
    before = signal.getsignal(signal.SIGTERM)
    found = Notice()
    yield found
    found.reset()
    signal.signal(signal.SIGTERM, before)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def wait(seconds: float) -> None:
    threading.Event().wait(seconds)  # a signal's handler may raise out of it, as out of any wait


def test_a_loop_that_looks_ends_by_itself(notice: Notice) -> None:
    notice.watch()
    assert not notice.given
    terminate()
    assert notice.given
    assert notice.ending
    notice.unwatch()
    wait(0.3)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert not notice.given


def test_a_loop_that_does_not_look_is_ended(notice: Notice) -> None:
    notice.watch()
    began = time.monotonic()
    terminate()
    with pytest.raises(SystemExit) as ended:
        wait(30)
    assert ended.value.code == 128 + signal.SIGTERM
    assert 0.1 <= time.monotonic() - began < 10


def test_a_second_signal_does_not_wait(notice: Notice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE", 60)
    notice.watch()
    terminate()
    with pytest.raises(SystemExit):
        terminate()


def test_the_users_handler_decides(notice: Notice) -> None:
    seen: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    mine = signal.getsignal(signal.SIGTERM)
    notice.watch()
    terminate()
    terminate()
    wait(0.3)
    assert notice.given
    assert not notice.ending, "it need not end at all"
    assert seen == [signal.SIGTERM, signal.SIGTERM]
    notice.unwatch()
    assert signal.getsignal(signal.SIGTERM) is mine


def test_a_handler_that_the_user_set_later_stays(notice: Notice) -> None:
    notice.watch()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    notice.unwatch()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_who_ignores_the_signal_goes_on_ignoring_it(notice: Notice) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    notice.watch()
    terminate()
    assert not notice.given
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_the_handler_stays_until_the_last_node_has_closed(notice: Notice) -> None:
    notice.watch()
    notice.watch()
    notice.unwatch()
    terminate()
    assert notice.given
    notice.unwatch()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_other_threads_change_no_handler(notice: Notice) -> None:
    def elsewhere() -> None:
        notice.watch()
        notice.unwatch()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_closed_elsewhere_the_signal_ends_the_process_as_ever(notice: Notice) -> None:
    notice.watch()
    thread = threading.Thread(target=notice.unwatch)
    thread.start()
    thread.join()
    with pytest.raises(SystemExit) as ended:
        terminate()
    assert ended.value.code == 128 + signal.SIGTERM
