"""Your own topology in one method: a ring with one long chord that turns every round.

    starlings launch -n 6 --topology custom_topology:Chords examples/digits.py    # in a swarm (PYTHONPATH=examples)
    python examples/custom_topology.py                                             # how it compares, without a swarm

`mixing` gets the members, sorted by id, and the number of the round; positions in that list are what it speaks of. It returns
the whole graph of the round. Every node computes it for itself, so it must depend on nothing else: no clock, no unseeded
randomness. Weights come from a rule (Metropolis by default), or are given one by one with `Mixing.directed`.

What is wrong is said at first use: which row does not sum to 1, which weight is negative, who is cut off.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import topology
from topology import Member, Mixing


@topology.register("chords")  # so that it also has a name, where this module is imported
@dataclass(frozen=True)
class Chords(topology.Topology):
    """A ring, and `chords` links to the far side whose starting point moves on each round."""

    chords: int = 1

    def mixing(self, members: Sequence[Member], round: int) -> Mixing:
        """The ring's edges and this round's chords."""
        n = len(members)
        ring = [(i, (i + 1) % n) for i in range(n)]
        starts = [(round + k) % n for k in range(self.chords)]
        return Mixing.undirected(n, ring + [(i, (i + n // 2) % n) for i in starts])


def main() -> None:
    """Compares it with built-in topologies, and shows what a mistake looks like."""
    members = topology.canonical(12)
    topology.check(Chords(), members)
    print(f"{'topology':24} {'partners':>8} {'rounds to 1e-3':>15} {'seconds for 100 MB on 10 Gbit':>30}")
    for a in topology.analyze([Chords(), Chords(chords=3), "ring", "torus", "base:k=2"], members=members):
        print(f"{a.name:24} {a.degree:8} {a.rounds or 'never':>15} {a.consensus_time or float('inf'):30.2f}")

    torn = topology.make(lambda members, round: Mixing.undirected(len(members), [(0, 1), (2, 3)]))
    try:
        topology.check(torn, topology.canonical(4))
    except topology.TopologyError as error:
        print(f"\nA torn graph is refused: {error}")


if __name__ == "__main__":
    main()
