"""Node and join: the trainer's side. Hooks on the optimizer make its `step()` a step of the swarm; the loop stays ordinary."""

from __future__ import annotations

import json
import logging
import math
import os
import random
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from safetensors.torch import save_model
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

import optim
import topology as topologies
from optim import Algorithm
from p2p.agent.agent import Agent, Task, Who, short
from p2p.agent.consensus import Consensus, consensus
from p2p.agent.entrance import Door
from p2p.agent.records import LIVE, boot_incarnation
from p2p.config import LAN, Config
from p2p.data import Epoch, ShardedSampler, Split
from p2p.errors import ClosedError, ConfigError, JoinError, StateError
from p2p.net import keys
from p2p.net.keys import Identity
from p2p.net.messages import Contract, SnapshotOffer
from p2p.net.zeromq import ZmqTransport
from p2p.report import EventLog, StepReport
from p2p.settings import ALGORITHM, TOPOLOGY, Settings, resolve
from p2p.state import Mean, Shards, collect
from p2p.thread import LoopThread

log = logging.getLogger("starlings")

TOLERANCE = 1e-3
"""Of `consensus()`: root mean square difference, over the root mean square of the parameters."""


def join(
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    *,
    peers: Sequence[str] | str = (),
    secret: bytes | str | os.PathLike[str] | None = None,
    listen: str | None = None,
    advertise: str | None = None,
    topology: object | None = None,
    algorithm: str | Algorithm | None = None,
    site: str | None = None,
    scheduler: LRScheduler | None = None,
    wait_for: int | None = None,
    join_timeout: float | None = None,
    insecure: bool | None = None,
    config: Config | None = None,
) -> Node:
    """Join the swarm that `peers` belong to, or found a new one where there are none. Use the result in a `with` block.

    A joiner's model and optimizer take a member's state before this returns. Gossip follows the steps of the first
    optimizer. A setting that is not given comes from the environment (STARLINGS_PEERS, ...), else from the swarm, else it
    is the default: topology "one-peer-exponential", algorithm "async". `secret` is 32 bytes, or the path of a file.
    Raises JoinError (ListenError, SecretError, ContractError) or ConfigError, which say what, where, and what to do.
    """
    settings = resolve(
        peers=peers,
        secret=secret,
        listen=listen,
        advertise=advertise,
        topology=topology,
        algorithm=algorithm,
        site=site,
        wait_for=wait_for,
        join_timeout=join_timeout,
        insecure=insecure,
    )
    optimizers = [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer)
    if not optimizers:
        raise ConfigError("no optimizer was given: gossip follows the steps of one")
    return Node(model, optimizers, settings, config or LAN, scheduler)


class Node:
    """One member of a swarm: this process's trainer, and its agent in a thread beside it. Made by `join`."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        settings: Settings,
        config: Config,
        scheduler: LRScheduler | None,
    ) -> None:
        self.model = model
        self._optimizers = tuple(optimizers)
        self._scheduler = scheduler
        self._settings = settings
        self._epoch = Epoch()
        self._phase = "training"
        self._averaging = self._gathered = self._closed = self._forked = False
        self._began = self._stepped = time.monotonic()
        config = replace(config, join=replace(config.join, timeout=settings.join_timeout))
        self._events = EventLog(self._file("events-{}.jsonl"), time.time)
        self._agent = self._make_agent(config)
        self._thread = LoopThread("starlings-agent")
        try:
            self._start(config)
        except BaseException:
            self._shut()
            raise
        self._hooks = [
            self._optimizers[0].register_step_pre_hook(self._before_step),
            self._optimizers[0].register_step_post_hook(self._after_step),
        ]
        _watch_forks(self)

    # --- what there is to see ---------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The node's short id: the first 10 hex digits of the hash of its public key."""
        return short(self._agent.node)

    @property
    def address(self) -> str:
        """Where others can join: give it to `starlings join`."""
        return self._agent.transport.control

    @property
    def last_step(self) -> StepReport:
        """What the last step exchanged. Raises StateError before the first one."""
        if self._agent.report is None:
            raise StateError("no step was taken yet")
        return self._agent.report

    @property
    def progress(self) -> float:
        """The swarm-wide step, the mean of the live members' as last heard: drive schedules by it."""
        return self._agent.progress

    @property
    def epoch(self) -> int:
        """Epochs begun, the donor's included."""
        return self._epoch.number

    @property
    def members(self) -> Mapping[str, str]:
        """Short ids of all known members, with how they stand: joining, alive, suspect, dead, left."""
        membership = self._agent.membership
        return {short(n): str(i.state) for n, i in membership.members.items()} if membership is not None else {}

    # --- what a trainer calls ---------------------------------------------------------------------------------------

    def sampler(self, data: Sized, *, split: Split = "shuffled", labels: Sequence[int] | None = None) -> ShardedSampler:
        """A torch Sampler of this node's share of each epoch; see ShardedSampler for what is promised."""
        return ShardedSampler(data, self._contract.seed, self._place, self._epoch, split, labels)

    def log(self, **scalars: float) -> None:
        """Write scalars to the event log, where the live view and the summary find them."""
        self._events.write("log", phase=self._phase, step=self._agent.step_count, **scalars)
        self._events.flush()

    @contextmanager
    def averaged(self) -> Iterator[int]:
        """Inside, the model holds the mean of the live members' models; yields how many took part.

        Their snapshots are pulled in turn, so they are not simultaneous; who stays silent past the deadline is left out. The
        own model comes back exactly at the end. `optimizer.step()` inside raises StateError.
        """
        mean = Mean(self._task.shards)
        self._thread.call(self._pull_all(mean))
        self._averaging = True
        try:
            with mean.applied():
                yield mean.count
        finally:
            self._averaging = False

    def consensus(self, tolerance: float = TOLERANCE, timeout: float | None = None) -> Consensus:
        """Exchange on, without local updates, until all live members have come here and their models are one.

        `tolerance` is relative to the root mean square of the parameters. Returns at the latest after `timeout` seconds
        (300), with the state that there is then, how far apart it is, and who still trains (they are not stopped).
        """
        self._alive()
        limit = self._agent.config.join.consensus if timeout is None else timeout
        result = self._thread.call(consensus(self._agent, tolerance * _scale(self.model), limit))
        self._phase = "average"
        missing = list(result.missing)
        self._events.write("consensus", seconds=result.seconds, distance=result.distance, done=result.done, missing=missing)
        if not result.done:
            log.warning("no consensus after %.0f s: distance %.3g, still training: %s", limit, result.distance, missing)
        return result

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as safetensors."""
        save_model(self.model, str(path))

    def close(self) -> None:
        """Leave the swarm: open swaps are drained, the others are told. A second call does nothing."""
        if self._closed or self._forked:
            return
        for hook in self._hooks:
            hook.remove()
        sent, received = self._agent.post.sent, self._agent.post.received
        seconds = time.monotonic() - self._began
        self._shut()
        self._events.write("end", steps=self._agent.step_count, seconds=seconds, sent=sent, received=received)
        self._events.close()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # --- hooks --------------------------------------------------------------------------------------------------------

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._averaging:
            raise StateError("optimizer.step() inside node.averaged(): the model holds the average there")
        self._alive()
        if not self._gathered:
            self._gather()

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        found = getattr(optimizer, "found_inf", None)  # set by a GradScaler on fused optimizers
        if isinstance(found, Tensor) and bool(found.item()):
            return  # the scaler skipped this step
        self._step()

    def _step(self) -> None:
        """`Agent.step`, with the waiting on the agent's loop and all else here."""
        self._agent.epoch = self._epoch.number
        self._agent.offer()
        if self._agent.waits:
            self._thread.call(self._agent.arrivals())
        report = self._agent.settle()
        now = time.monotonic()
        self._events.step(report, now - self._stepped)
        self._stepped = now

    def _gather(self) -> None:
        """The first step waits for `wait_for` members."""
        wanted = self._settings.wait_for
        if wanted > 1 and not self._thread.call(self._agent.members(wanted, self._agent.config.join.timeout)):
            log.warning("%d of %d members are here; training begins without the others", len(self._agent.view), wanted)
        self._gathered = True
        self._stepped = time.monotonic()

    def _alive(self) -> None:
        if self._forked:
            raise ClosedError("this is a forked child: the node belongs to its parent")
        if self._closed:
            raise ClosedError("the node has left the swarm")

    # --- beginning and end --------------------------------------------------------------------------------------------

    def _make_agent(self, config: Config) -> Agent:
        settings = self._settings
        key = self._file("node-{}.key")
        identity = Identity.load_or_create(key) if key else Identity.from_seed(os.urandom(keys.KEY_BYTES))
        incarnation = boot_incarnation(-1, time.time_ns() // 1_000_000)
        who = Who(identity, incarnation, keys.swarm_id(settings.secret), settings.site)
        transport = ZmqTransport(
            settings.listen, advertise=settings.advertise, secret=settings.secret, insecure=settings.insecure
        )
        return Agent(who, transport, config, random.Random(identity.node), self._events)

    def _start(self, config: Config) -> None:
        call, agent = self._thread.call, self._agent
        call(agent.open())
        door = call(agent.knock(self._settings.peers)) if self._settings.peers else None
        self._task = self._make_task(door, config)
        self._contract = self._task.contract
        optim.check(self._task.algorithm, self._task.topology, self._settings.wait_for)
        if self._scheduler is not None:
            agent.scheduler = self._schedule
        if door is None:
            call(_soon(agent.enter, self._task))
        else:
            self._take(call(agent.join(self._task, door)))
        self._events.write(
            "start", index=self._settings.index, id=self.id, address=self.address, pid=os.getpid(), step=agent.step_count
        )
        self._events.flush()
        file = f" --secret-file {self._secret_file()}" if self._settings.secret else ""
        log.info("node %s is in the swarm; to join: starlings join %s%s SCRIPT", self.id, self.address, file)

    def _make_task(self, door: Door | None, config: Config) -> Task:
        """The contract: what the keywords say, else the swarm's terms, else the defaults."""
        theirs = door.terms.contract if door else None
        algorithm = _made(optim.make, self._settings.algorithm, theirs.algorithm if theirs else None, ALGORITHM)
        topology = _made(topologies.make, self._settings.topology, theirs.topology if theirs else None, TOPOLOGY)
        sources = collect(self.model, self._optimizers, state=algorithm.shares_state)
        shards = Shards(sources, block_bytes=config.exchange.block_bytes, live=algorithm.exchange == "swap")
        contract = Contract(
            shards.schema.fingerprint,
            shards.schema.hashes,
            "+".join(type(optimizer).__name__ for optimizer in self._optimizers),
            optim.spec_of(algorithm),
            topologies.spec_of(topology),
            topologies.fingerprint(topology),
            theirs.seed if theirs else config.seed,
        )
        return Task(contract, algorithm, topology, shards)

    def _take(self, offer: SnapshotOffer) -> None:
        """A donor's state becomes this node's."""
        self._task.shards.apply()
        self._epoch.number = offer.epoch
        if self._scheduler is not None and offer.scheduler:
            self._scheduler.load_state_dict(json.loads(offer.scheduler))
            for group, rate in zip(self._scheduler.optimizer.param_groups, self._scheduler.get_last_lr(), strict=True):
                group["lr"] = rate
        self._thread.call(_soon(self._agent.ready, offer))

    def _schedule(self) -> str:
        assert self._scheduler is not None
        return json.dumps({k: v for k, v in self._scheduler.state_dict().items() if _plain(v)})

    async def _pull_all(self, mean: Mean) -> None:
        membership = self._agent.membership
        others = [m.id for m in self._agent.view.members if m.id != self._agent.node]
        for node in others:
            if membership is None or membership.members[node].state not in LIVE:
                continue
            with suppress(JoinError):
                await self._agent.pull(node, lambda index, data, codec, step: mean.put(index, data, codec))
            mean.close()

    def _place(self) -> tuple[int, int]:
        view = self._agent.view
        return view.index(self._agent.node), len(view)

    def _shut(self) -> None:
        self._closed = True
        with suppress(ClosedError):
            self._thread.call(self._agent.leave())
        self._thread.stop()

    def _file(self, name: str) -> Path | None:
        return self._settings.run_dir / name.format(self._settings.index) if self._settings.run_dir else None

    def _secret_file(self) -> str:
        return os.environ.get("STARLINGS_SECRET", "SECRET_FILE")

    def _abandon(self) -> None:
        """In a forked child: the connections are the parent's."""
        self._forked = True
        transport = self._agent.transport
        if isinstance(transport, ZmqTransport):
            transport.abandon_after_fork()


def _made(make: Any, own: object | None, theirs: str | None, default: str) -> Any:
    """The own choice, else the swarm's (built-in names only: nobody imports a module that a peer names), else the default."""
    if own is not None:
        return make(own)
    return make(theirs, builtin_only=True) if theirs else make(default)


def _plain(value: object) -> bool:
    """Whether JSON can hold it: a scheduler's lambdas and wrapped functions stay the joiner's own."""
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


async def _soon(function: Any, *args: Any) -> None:
    """Call a plain function on the loop."""
    function(*args)


def _scale(model: nn.Module) -> float:
    """Root mean square of the trainable parameters."""
    parameters = [p for p in model.parameters() if p.requires_grad and p.numel()]
    squares = sum(float(p.detach().double().square().sum()) for p in parameters)
    return math.sqrt(squares / max(sum(p.numel() for p in parameters), 1))


_nodes: weakref.WeakSet[Node] = weakref.WeakSet()


def _watch_forks(node: Node) -> None:
    _nodes.add(node)


def _forked() -> None:
    for node in list(_nodes):
        node._abandon()


os.register_at_fork(after_in_child=_forked)
