"""Node and join: the trainer's side. Hooks on the optimizer make its `step()` a step of the swarm; the loop stays ordinary."""

from __future__ import annotations

import logging
import math
import os
import random
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import torch
from safetensors.torch import save_model
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.hooks import RemovableHandle

from optim import Algorithm
from p2p.agent.agent import Agent
from p2p.agent.averaging import pull_all
from p2p.agent.consensus import Consensus, consensus
from p2p.batches import PartBatches
from p2p.bootstrap import Bootstrap, make_transport, make_who
from p2p.config import LAN, Config
from p2p.data import Epoch, LeaseSampler, RotatedSampler, SortedSampler, Split
from p2p.errors import ClosedError, ConfigError, StateError
from p2p.feed import Feed
from p2p.handover import Handover
from p2p.incarnation import Incarnation
from p2p.net.keys import short
from p2p.net.zeromq import ZmqTransport
from p2p.notice import notice
from p2p.registry import closed, opened
from p2p.report import EventLog, StepReport
from p2p.saving import Saving
from p2p.settings import Settings, resolve
from p2p.state import Criterion, Mean, holding
from p2p.stepper import Stepper
from p2p.stream import Stream
from p2p.task import make_task
from p2p.thread import LoopThread

log = logging.getLogger("starlings")

T = TypeVar("T")

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
    interface: str | None = None,
    dial_only: bool | None = None,
    topology: object | None = None,
    algorithm: str | Algorithm | None = None,
    site: str | None = None,
    scheduler: LRScheduler | None = None,
    scaler: GradScaler | None = None,
    resume: str | os.PathLike[str] | None = None,
    wait_for: int | None = None,
    join_timeout: float | None = None,
    insecure: bool | None = None,
    codec: str | None = None,
    uplink: str | None = None,
    downlink: str | None = None,
    wan: str | None = None,
    config: Config | None = None,
) -> Node:
    """Join the swarm that `peers` belong to, or found a new one where there are none. Use the result in a `with` block.

    A joiner's model and optimizer take a member's state before this returns. Gossip follows the steps of the first
    optimizer. A setting that is not given comes from the environment (STARLINGS_PEERS, ...), else from the swarm, else it
    is the default: topology "one-peer-exponential", algorithm "async". `secret` is 32 bytes, or the path of a file.
    `scheduler` and `scaler` are handed over to joiners and kept in checkpoints. `resume` goes on from the newest checkpoint in
    a run directory: a founder from there, a joiner if no member is further. `codec` is how blocks travel (`int8`, `auto`,
    `raw,eu:us=low-rank:1`); `uplink` and `downlink` ("20mbit") limit this node, `wan` ("eu:us=50mbit") its site and another.
    Raises JoinError (ListenError, SecretError, ContractError) or ConfigError, which say what, where, and what to do.
    """
    settings = resolve(
        peers=peers,
        secret=secret,
        listen=listen,
        advertise=advertise,
        interface=interface,
        dial_only=dial_only,
        topology=topology,
        algorithm=algorithm,
        site=site,
        wait_for=wait_for,
        join_timeout=join_timeout,
        insecure=insecure,
        resume=resume,
        codec=codec,
        uplink=uplink,
        downlink=downlink,
        wan=wan,
    )
    optimizers = [optimizer] if isinstance(optimizer, Optimizer) else list(optimizer)
    if not optimizers:
        raise ConfigError("no optimizer was given: gossip follows the steps of one")
    return Node(model, optimizers, settings, config or LAN, scheduler, scaler)


class Node:
    """One member of a swarm: this process's trainer, and its agent in a thread beside it. Made by `join`."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        settings: Settings,
        config: Config,
        scheduler: LRScheduler | None,
        scaler: GradScaler | None,
    ) -> None:
        self.model = model
        self._optimizers = tuple(optimizers)
        self._settings = settings
        self._epoch = Epoch()
        self._phase = "training"
        self._standing_in = ""  # what the model holds the mean of
        self._gathered = self._closed = self._forked = False
        self._began = time.monotonic()
        config = settings.configured(config)
        self._hooks: list[RemovableHandle] = []
        incarnation = Incarnation(settings.file("node-{}.incarnation"))
        who, transport = make_who(settings, incarnation), make_transport(settings, config)
        self._events = EventLog(settings.file("events-{}.jsonl"), time.time)
        self._agent = Agent(who, transport, config, random.Random(who.identity.node), self._events)
        root = settings.file("checkpoints/node-{}")
        self._saving = Saving(root, model, self._optimizers, scheduler, scaler, self._events, self._agent.metrics)
        self._agent.extras = self._saving.extras
        self._agent.keep = incarnation.keep
        self._thread = LoopThread("starlings-agent")
        self._closing = threading.Lock()
        notice.watch()
        try:
            self._start(config, transport)
        except BaseException:
            self._shut()
            raise
        self._hooks = [
            self._optimizers[0].register_step_pre_hook(self._before_step),
            self._optimizers[0].register_step_post_hook(self._after_step),
        ]
        opened(self.close, self._abandon)

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
    def step_count(self) -> int:
        """Steps taken; a joiner's count begins at its donor's, a resumed node's at its checkpoint's."""
        return self._agent.step_count

    @property
    def epoch(self) -> int:
        """Epochs begun, the donor's included."""
        return self._epoch.number

    @property
    def members(self) -> Mapping[str, str]:
        """Short ids of all known members, with how they stand: joining, alive, suspect, dead, left."""
        membership = self._agent.membership
        return {short(n): str(i.state) for n, i in membership.members.items()} if membership is not None else {}

    @property
    def criterion(self) -> Criterion | None:
        """What algorithms that compare losses call: a function that returns the loss of the model on the batch at hand.

        Set it before the first step, as `node.criterion = lambda: loss_function(model(x), y)`, with the loop's x and y. It is
        called in `optimizer.step()`, without gradients, and must leave the model as it is.
        """
        return self._task.method.criterion

    @criterion.setter
    def criterion(self, criterion: Criterion) -> None:
        self._task.method.criterion = criterion

    @property
    def leaving(self) -> bool:
        """Whether the process was told to end (SIGTERM): a loop that breaks now leaves in good order; soon it is broken."""
        return notice.given

    def story(self, member: str) -> list[str]:
        """What happened to one member lately, and why, by its short id."""
        membership = self._agent.membership
        return [line for n in membership.members if short(n) == member for line in membership.story(n)] if membership else []

    # --- what a trainer calls ---------------------------------------------------------------------------------------

    def sampler(
        self, data: Sized, *, chunk: int | None = None, split: Split = "shuffled", labels: Sequence[int] | None = None
    ) -> LeaseSampler | RotatedSampler | SortedSampler:
        """A torch Sampler of this node's share of each epoch; see LeaseSampler for what is promised.

        Work is shared out in chunks of `chunk` samples. Scripts make their samplers in the same order on every node.
        `split="rotated"` gives every node all samples, each beginning elsewhere, for algorithms with long local phases.
        `split="sorted"` deals the samples sorted by `labels` instead, so that a node sees few of them: for experiments.
        """
        return self._feed.sampler(data, chunk, split, labels)

    def batches(self, data: Sized, batch: int | str, *, micro: int | None = None, chunk: int | None = None) -> PartBatches:
        """A batch sampler: `batch="global:256"` keeps the sum of all nodes' batches at 256; see PartBatches."""
        return self._feed.batches(data, batch, micro, chunk)

    def stream(self, items: Iterable[T]) -> Stream[T]:
        """An IterableDataset of this node's part of a stream that every node reads; see Stream for what is promised."""
        return self._feed.stream(items)

    def epochs(self, count: int) -> Iterator[int]:
        """The numbers of the epochs that are still to be done of the first `count`; a joiner begins in the swarm's.

        Ends when some node has processed every sample of all of them. Where one dies in the last epoch, that number comes
        again, once what it left over can be taken up.
        """
        return self._feed.epochs(count)

    def log(self, **scalars: float) -> None:
        """Write scalars to the event log, where the live view and the summary find them."""
        self._alive()
        self._events.write("log", phase=self._phase, step=self._agent.step_count, **scalars)
        self._events.flush()

    def checkpoint(self, every: int, keep: int = 2, path: str | os.PathLike[str] | None = None) -> None:
        """From now on, write a checkpoint every `every` steps and keep the newest `keep`; `join(resume=...)` goes on from one.

        Training doesn't wait for the disk. Goes to `path`, else to `checkpoints/node-<i>` in the run directory. Where it can't
        be written, a warning says so and training goes on. Raises ConfigError for what can't be.
        """
        self._alive()
        resumed = self._settings.resume is not None
        self._saving.begin(every, keep, Path(path) if path is not None else None, self.step_count, resumed)

    @contextmanager
    def averaged(self) -> Iterator[int]:
        """Inside, the model holds the mean of the live members' models; yields how many took part.

        Their snapshots are pulled in turn, so they are not simultaneous; who stays silent past the deadline is left out. The
        own model comes back exactly at the end. `optimizer.step()` inside raises StateError.
        """
        self._ready("averaged()")
        mean = Mean(self._task.shards)
        self._thread.call(pull_all(self._agent, mean))
        with self._stand_in("node.averaged()"), mean.applied():
            yield mean.count

    @contextmanager
    def ema(self) -> Iterator[None]:
        """Inside, the model's parameters hold their moving average over the steps so far, of the algorithm's decay `ema`.

        They come back exactly at the end; `optimizer.step()` inside raises StateError. Where all nodes call `consensus()`
        inside, at the same time, the average becomes that of the swarm's mean. Buffers are not averaged: see
        `torch.optim.swa_utils.update_bn` for BatchNorm's. Raises StateError where no average is kept.
        """
        self._alive()
        values = self._task.method.ema()
        with self._stand_in("node.ema()"), holding(values):
            yield

    @contextmanager
    def _stand_in(self, what: str) -> Iterator[None]:
        if self._standing_in:
            raise StateError(f"{what} inside {self._standing_in}: the model holds an average there")
        self._standing_in = what
        try:
            yield
        finally:
            self._standing_in = ""

    def consensus(self, tolerance: float = TOLERANCE, timeout: float | None = None) -> Consensus:
        """Exchange on, without local updates, until all live members have come here and their models are one.

        `tolerance` is relative to the root mean square of the parameters. Returns at the latest after `timeout` seconds
        (300), with the state that there is then, how far apart it is, and who still trains (they are not stopped).
        """
        self._ready("consensus()")
        self._feed.rest()
        limit = self._agent.config.join.consensus if timeout is None else timeout
        result = self._thread.call(consensus(self._agent, tolerance * _scale(self.model), limit))
        self._phase = "average"
        missing = list(result.missing)
        self._events.write("consensus", seconds=result.seconds, distance=result.distance, done=result.done, missing=missing)
        if not result.done:
            log.warning("no consensus after %.0f s: distance %.3g, still training: %s", limit, result.distance, missing)
        return result

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as safetensors, whole or not at all; in `averaged()` that is the average."""
        part = Path(f"{os.fspath(path)}.part")
        save_model(getattr(self.model, "_orig_mod", self.model), str(part))  # torch.compile's wrapper would add to the names
        os.replace(part, path)

    def close(self) -> None:
        """Leave the swarm: open swaps are drained, the others are told. A second call does nothing.

        Told to end (SIGTERM), a node that writes checkpoints writes one of its last step first.
        """
        self._end(told=notice.given)

    def _end(self, told: bool) -> None:
        if self._forked:
            return
        with self._closing:
            if not self._closed:
                self._close(told)

    def _close(self, told: bool) -> None:
        for hook in self._hooks:
            hook.remove()
        if told and not self._standing_in:
            self._stepper.last(self._state)
        self._saving.finish()
        with suppress(ClosedError):
            self._feed.finish()
        sent, received = self._agent.post.sent, self._agent.post.received
        seconds = time.monotonic() - self._began
        doubled = self._feed.duplicates
        self._events.write("end", steps=self._agent.step_count, seconds=seconds, sent=sent, received=received, doubled=doubled)
        self._shut()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end(told=notice.given or (kind is not None and issubclass(kind, KeyboardInterrupt | SystemExit)))

    # --- hooks --------------------------------------------------------------------------------------------------------

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._ready("optimizer.step()")
        self._stepper.prepare()

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        found = getattr(optimizer, "found_inf", None)  # set by a GradScaler on fused optimizers
        if isinstance(found, Tensor) and bool(found.item()):
            self._stepper.midway = False
            return  # the scaler skipped this step
        self._agent.epoch = self._epoch.number
        self._stepper.step(self._state)

    def _state(self, report: StepReport) -> dict[str, object]:
        """What a checkpoint holds of the swarm and of the work."""
        found = {"epoch": self._epoch.number, "round": report.round, "seed": self._task.contract.seed}
        return {**found, "samplers": self._feed.state(), "progress": self.progress, "members": dict(self.members)}

    def _ready(self, what: str) -> None:
        """What needs the others, and the node's own model, first waits for `wait_for` members."""
        if self._standing_in and (what, self._standing_in) != ("consensus()", "node.ema()"):
            raise StateError(f"{what} inside {self._standing_in}: the model holds an average there")
        self._alive()
        if not self._gathered:
            self._gather()
        if what == "sampling" and self._handover.midway:
            self._saving.reseed()

    def _gather(self) -> None:
        wanted = self._settings.wait_for
        if wanted > 1 and not self._thread.call(self._agent.members(wanted, self._agent.config.join.timeout)):
            log.warning("%d of %d members are here; training begins without the others", len(self._agent.view), wanted)
        if self._settings.resume is not None:
            self._handover.agree()
        self._gathered = True
        self._stepper.begin()

    def _alive(self) -> None:
        if self._forked:
            raise ClosedError("this is a forked child: the node belongs to its parent")
        if self._closed:
            raise ClosedError("the node has left the swarm")

    # --- beginning and end --------------------------------------------------------------------------------------------

    def _start(self, config: Config, transport: ZmqTransport) -> None:
        way = Bootstrap(self._settings, self._thread, self._agent, transport, self._saving)
        self._task = make_task(self.model, self._optimizers, self._settings, way.seeded(config), way.contract)
        seed, method = self._task.contract.seed, self._task.method
        self._feed = Feed(self._thread, self._agent.work, seed, self._epoch, self._ready, self._place, self._present)
        self._handover = Handover(self._thread, self._agent, self._task, self._saving, self._feed, self._epoch)
        self._stepper = Stepper(self._thread, self._agent, method, self._saving, self._feed, self._handover, self._events)
        way.enter(self._task, self._handover)
        self._events.write(
            "start", index=self._settings.index, id=self.id, address=self.address, pid=os.getpid(), step=self.step_count
        )
        self._events.flush()
        file = f" --secret-file {os.environ.get('STARLINGS_SECRET', 'SECRET_FILE')}" if self._settings.secret else ""
        log.info("node %s is in the swarm; to join: starlings join %s%s SCRIPT", self.id, self.address, file)

    def _place(self) -> tuple[int, int]:
        self._ready("sampling")
        view = self._agent.view
        return view.index(self._agent.node), len(view)

    def _present(self) -> tuple[int, int]:
        self._ready("sampling")
        assert self._agent.membership is not None
        present = self._agent.membership.present
        return present.index(self._agent.node), len(present)

    def _shut(self) -> None:
        self._closed = True
        closed(self.close)
        try:
            with suppress(ClosedError):
                self._thread.call(self._agent.leave())
        finally:
            self._thread.stop()
            self._events.close()
            notice.unwatch()

    def _abandon(self) -> None:
        """In a forked child: the connections are the parent's."""
        self._forked = True
        transport = self._agent.transport
        if isinstance(transport, ZmqTransport):
            transport.abandon_after_fork()


def _scale(model: nn.Module) -> float:
    """Root mean square of the trainable parameters."""
    parameters = [p for p in model.parameters() if p.requires_grad and p.numel()]
    squares = sum(float(torch.linalg.vector_norm(p.detach(), dtype=_wide(p))) ** 2 for p in parameters)  # copies nothing
    return math.sqrt(squares / max(sum(p.numel() for p in parameters), 1))


def _wide(p: Tensor) -> torch.dtype:
    return torch.promote_types(p.dtype, torch.float32)
