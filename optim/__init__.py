"""What is mixed, when, and how: algorithms of decentralized optimization. Knows `topology`; does no I/O, knows no socket."""

from optim.algorithm import Algorithm
from optim.asynchronous import Async
from optim.compatibility import Incompatible, check
from optim.gossip import Gossip
from optim.kinds import Kind
from optim.registry import make, names, register, spec_of

__all__ = ["Algorithm", "Async", "Gossip", "Incompatible", "Kind", "check", "make", "names", "register", "spec_of"]
