"""What members do who send wrong models: 16 simulated nodes, 4-regular, two of them bad; accuracy on digits by rule and attack.

    python scripts/bench/attacks.py                                      # the whole table: 112 runs of about 8 s
    python scripts/bench/attacks.py --split shuffled --rules nearest     # some of it

The bad two train like the others and know all honest models, but send, whatever the block: `nan`; `1e8`; `flip`, their
own values negated; `little`, the honest mean less 1.5 standard deviations (a little is enough, Baruch et al., 2019);
`dissensus`, to each partner its own values less all that its honest neighbours would have brought (He et al., 2022); `close`,
the same in small, no further from it than the honest ones are. Printed: the mean of the honest nodes' accuracies on held-out
images after `--steps` steps, and that of the mean of their models; `clean` is without bad ones.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from optim.codec import RAW
from p2p.agent.exchange import Opened
from p2p.agent.pusher import Pusher
from p2p.agent.rounds import Pushed
from p2p.agent.swapper import Swapper
from p2p.config import LAN
from p2p.net.physics import Line, Underlay
from p2p.sim.compute import Paced
from p2p.sim.node import SimulatedNode
from p2p.sim.swarm import SimulatedSwarm
from p2p.sim.workloads import Digits
from p2p.state.layout import Block
from p2p.state.outcome import Difference
from p2p.state.shards import Shards

NODES, BAD, TOPOLOGY = 16, (3, 11), "regular:degree=4"
RULES = {
    "async, no gate": "async:clip=0",
    "async": "async",
    "async, clipped at the median": "async:clip=1",
    "gossip, no gate": "gossip:clip=0",
    "gossip": "gossip",
    "gossip, nearest": "gossip:robust=nearest",
    "gossip, clipped": "gossip:robust=clipped",
    "gossip, trimmed": "gossip:robust=trimmed",
}
ATTACKS = ("clean", "nan", "1e8", "flip", "little", "dissensus", "close")


class Liars(SimulatedSwarm):
    """A swarm in which the BAD nodes send what `attack` says."""

    attack = "clean"

    def entered(self, node: SimulatedNode) -> None:
        super().entered(node)
        if self.attack != "clean" and node.index in BAD:
            turn(node, self)

    def honest(self) -> list[SimulatedNode]:
        return [node for node in self.nodes if self.attack == "clean" or node.index not in BAD]

    def lie(self, liar: Shards, block: Block, partner: str) -> Tensor:
        """What a bad node claims to hold of a block."""
        own = held(liar, block)
        if self.attack in ("nan", "1e8"):
            return torch.full_like(own, math.nan if self.attack == "nan" else 1e8)
        if self.attack == "flip":
            return -own
        values = torch.stack([held(node.shards, block) for node in self.honest()])
        if self.attack == "little":
            return values.mean(0) - 1.5 * values.std(0)
        victims = [node for node in self.honest() if node.agent.node == partner]
        if not victims:
            return own
        mine = held(victims[0].shards, block)
        return 2 * mine - values.mean(0) if self.attack == "close" else self.against(victims[0], mine, block)

    def against(self, victim: SimulatedNode, mine: Tensor, block: Block) -> Tensor:
        """What takes back all that its honest neighbours bring, where all weights are alike."""
        exchange = victim.agent.exchange
        assert isinstance(exchange, Swapper) or (isinstance(exchange, Pusher) and exchange._seat is not None)
        asks = exchange.swaps.row if isinstance(exchange, Swapper) else exchange._seat.asks
        ids = {partner for partner, _ in asks(0)}
        honest = [held(node.shards, block) for node in self.honest() if node.agent.node in ids]
        return mine - (torch.stack(honest) - mine).sum(0) / max(len(ids) - len(honest), 1)


def held(shards: Shards, block: Block) -> Tensor:
    return shards._copy.piece(block)


def turn(node: SimulatedNode, swarm: Liars) -> None:
    """From now on, what leaves this node is a lie; what comes is mixed as ever."""
    exchange = node.agent.exchange
    if isinstance(exchange, Pusher):
        exchange._push = lying_push(exchange, swarm)  # type: ignore[method-assign]
    elif isinstance(exchange, Swapper):
        lying_swaps(exchange, swarm)


def lying_push(pusher: Pusher, swarm: Liars) -> Callable[[Pushed], bool]:
    honest = pusher._push

    def push(push: Pushed) -> bool:
        published = pusher._published[push.round]
        blocks = [b for b in pusher.shards.blocks[push.first : push.first + push.count] if b.kind.linear]
        kept = [published.store.piece(block).clone() for block in blocks]
        for block in blocks:
            published.store.piece(block).copy_(swarm.lie(pusher.shards, block, push.partner))
        done = honest(push)
        for block, value in zip(blocks, kept, strict=True):
            published.store.piece(block).copy_(value)
        return done

    return push


def lying_swaps(swapper: Swapper, swarm: Liars) -> None:
    shards, ask, mix = swapper.shards, swapper._ask, swapper._mix
    stage, answer = shards.stage, shards.answer
    partner = [""]

    def lying_ask(opened: Opened, now: float) -> None:
        partner[0] = opened.partner
        ask(opened, now)

    def lying_mix(sender: str, *rest: Any) -> None:
        partner[0] = sender
        mix(sender, *rest)

    def lying_stage(first: int, count: int, codec: Any, out: Tensor, *rest: Any) -> tuple[str, ...]:
        stage(first, count, codec, out)
        for block, piece in zip(shards.blocks[first : first + count], shards.split(out, first, count, codec), strict=True):
            if block.kind.linear:
                RAW.encode(swarm.lie(shards, block, partner[0]), piece)
        return ()

    def lying_answer(index: int, data: Tensor, codec: Any, weight: float, out: Tensor, *rest: Any) -> Difference:
        block = shards.blocks[index]
        theirs = RAW.decode(data, torch.empty_like(held(shards, block)))
        lie = swarm.lie(shards, block, partner[0])
        found = answer(index, data, codec, weight, out, *rest)
        if block.kind.linear:
            RAW.encode(weight * (theirs - lie), out)
        return found

    swapper._ask, swapper._mix = lying_ask, lying_mix  # type: ignore[method-assign]
    shards.stage, shards.answer = lying_stage, lying_answer  # type: ignore[method-assign]


def accuracies(algorithm: str, attack: str, split: str, steps: int, seed: int) -> tuple[float, float]:
    """Of the honest nodes, in the mean, and of the mean of their models."""
    digits = Digits(NODES, split=split, seed=seed)  # type: ignore[arg-type]
    swarm = Liars(
        NODES,
        seed=seed,
        topology=TOPOLOGY,
        algorithm=algorithm,
        workload=digits,
        compute=Paced(mean=0.15, variation=0.1, seed=seed),
        underlay=Underlay(seed, access=Line(latency=0.0005)),
        config=replace(LAN, exchange=replace(LAN.exchange, block_bytes=4096)),
    )
    swarm.attack = attack
    swarm.run(steps=steps)
    models = [node.model for node in swarm.honest()]
    mean = torch.stack([nn.utils.parameters_to_vector(model.parameters()).detach() for model in models]).mean(0)
    average = digits.model(0)
    nn.utils.vector_to_parameters(mean, average.parameters())
    return sum(map(digits.score, models)) / len(models), digits.score(average)


def outcome(algorithm: str, attack: str, split: str, steps: int, seed: int) -> tuple[float, float]:
    """One run, in a process of its own."""
    torch.set_num_threads(1)
    logging.getLogger("starlings").setLevel(logging.ERROR)
    return accuracies(algorithm, attack, split, steps, seed)


def table(pool: Executor, rules: Sequence[str], attacks: Sequence[str], split: str, steps: int, seed: int) -> None:
    """Lines appear in order, each as soon as its runs and those before it are done."""
    print(f"\n{split}, {steps} steps, seed {seed}: nodes / average")
    print(f"{'rule':30}" + "".join(f"{attack:>15}" for attack in attacks))
    under_way = [[pool.submit(outcome, RULES[name], attack, split, steps, seed) for attack in attacks] for name in rules]
    for name, runs in zip(rules, under_way, strict=True):
        cells = (run.result() for run in runs)
        print(f"{name:30}" + "".join(f"{nodes:7.3f} /{average:6.3f}" for nodes, average in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rules", default="", help="rows with this in their name; several between semicolons")
    parser.add_argument("--attacks", default=",".join(ATTACKS))
    parser.add_argument("--split", choices=("sorted", "shuffled"), help="else both")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at once")
    given = parser.parse_args()
    words = [word.strip() for word in given.rules.split(";")]
    rules = [name for name in RULES if any(word in name for word in words)]
    began = time.perf_counter()
    with ProcessPoolExecutor(given.jobs) as pool:
        for split in (given.split,) if given.split else ("sorted", "shuffled"):
            table(pool, rules, given.attacks.split(","), split, given.steps, given.seed)
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
