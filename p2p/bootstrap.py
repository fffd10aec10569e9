"""The bootstrap: who a node is, where it listens, and how it joins a swarm or founds one, with the newest state there is."""

from __future__ import annotations

import os
import time
from dataclasses import replace

from p2p.agent.agent import Agent
from p2p.agent.entrance import Door
from p2p.agent.participant import Task, Who
from p2p.config import Config
from p2p.handover import Handover
from p2p.incarnation import Incarnation
from p2p.net import keys
from p2p.net.address import interface_host, parse_address
from p2p.net.keys import Identity
from p2p.net.messages import Contract, Phase
from p2p.net.zeromq import ZmqTransport
from p2p.saving import Saving
from p2p.settings import Settings
from p2p.thread import LoopThread, soon


def make_who(settings: Settings, incarnation: Incarnation) -> Who:
    """The identity kept in the run directory, or a new one; started again, its word is the later one."""
    key, secret = settings.file("node-{}.key"), settings.secret
    identity = Identity.load_or_create(key) if key else Identity.from_seed(os.urandom(keys.KEY_BYTES))
    first = incarnation.next(time.time_ns() // 1_000_000)
    return Who(identity, first, keys.swarm_id(secret), settings.site, settings.dial_only)


def make_transport(settings: Settings, config: Config) -> ZmqTransport:
    """Sockets of this node, not bound yet."""
    s = settings
    advertise = s.advertise or (interface_host(s.interface) if s.interface else None)
    return ZmqTransport(s.listen, advertise=advertise, secret=s.secret, insecure=s.insecure, config=config.net)


class Bootstrap:
    """Finds the door and the checkpoint; then, once it is known what is trained, goes in and takes the state."""

    def __init__(self, settings: Settings, thread: LoopThread, agent: Agent, transport: ZmqTransport, saving: Saving) -> None:
        self._thread, self._agent = thread, agent
        thread.call(agent.open())
        self._door = thread.call(agent.knock(settings.peers)) if settings.peers else None
        if self._door is not None:
            transport.face(_outside(self._door))
        resume = settings.resume
        self._saved = saving.found(resume, needed=self._door is None) if resume is not None else None

    @property
    def contract(self) -> Contract | None:
        """Of the swarm behind the door; None for a founder."""
        return self._door.terms.contract if self._door else None

    def seeded(self, config: Config) -> Config:
        """With the checkpoint's seed, where there is one."""
        return replace(config, seed=int(self._saved.state["seed"])) if self._saved is not None else config

    def enter(self, task: Task, handover: Handover) -> None:
        """Be a member, with a state to train from. Raises as `Agent.join` does."""
        door, saved = self._door, self._saved
        if door is None:
            self._thread.call(soon(self._agent.enter, task, (), Phase.JOINING if saved else Phase.TRAINING))
        else:
            self._thread.call(self._agent.present(task, door))
        if saved is not None and (door is None or handover.newer(saved)):
            handover.restore(saved)
        elif door is not None:
            handover.take(handover.pull())


def _outside(door: Door) -> str:
    """Where a member is for other machines; the way that this one took may be loopback."""
    return door.terms.record.control if parse_address(door.address).loopback else door.address
