"""The outbox: instructions until they are fetched, each refusal told once, and the changes of late for who asks why."""

from __future__ import annotations

from collections import Counter, deque

from p2p.agent.instructions import Changed, Instruction, Refused, Returned, Send
from p2p.agent.records import State
from p2p.net.messages import Message

HISTORY = 256
"""So many changes are kept for `story`, all nodes together."""


class Outbox:
    """What the membership machine says."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()
        self._told: set[tuple[str, str]] = set()
        self._history: deque[tuple[float, str, State | None, State, str]] = deque(maxlen=HISTORY)
        self._out: list[Instruction] = []

    def __len__(self) -> int:
        return len(self._out)

    def send(self, node: str, message: Message) -> None:
        """A message to a node."""
        self._out.append(Send(node, message))

    def changed(self, now: float, node: str, before: State | None, after: State, reason: str) -> None:
        """A node stands otherwise now."""
        self.note(now, node, before, after, reason)
        self._out.append(Changed(node, before, after, reason))

    def returned(self, reason: str) -> None:
        """This node was away."""
        self._out.append(Returned(reason))

    def refuse(self, source: str, reason: str) -> None:
        """News of a node is not taken."""
        self.refused[reason] += 1
        if (source, reason) not in self._told and len(self._told) < HISTORY:
            self._told.add((source, reason))
            self._out.append(Refused(source, reason))

    def flush(self) -> list[Instruction]:
        """All that was said since the last time, in its order."""
        out, self._out = self._out, []
        return out

    def note(self, now: float, node: str, before: State | None, after: State, reason: str) -> None:
        """Keep for `story`."""
        self._history.append((now, node, before, after, reason))

    def story(self, node: str) -> list[str]:
        """What happened to one node lately, and why."""
        return [
            f"{at:.3f} {before or 'unknown'} -> {after}: {reason}"
            for at, who, before, after, reason in self._history
            if who == node
        ]
