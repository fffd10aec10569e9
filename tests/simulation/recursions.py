"""The algorithms as plain recursions in numpy (float64), written from the published formulas; knows nothing of `optim`.

x and g are (n, size); `mix(t)` is round t's (n, n) mixing matrix, `lr(t)` step t's rate. Each function returns x after `steps`
steps. `sign` multiplies one term of each formula: anything but 1 makes it another algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from topology import Member, Mixing, Topology

Array = npt.NDArray[np.float64]
BETA, MU = 0.9, 0.9


@dataclass(frozen=True)
class Problem:
    """Quadratics f_i(x) = (x - b_i)^T A_i (x - b_i) / 2, and who mixes how."""

    a: Array  # (n, size, size)
    b: Array  # (n, size)
    start: Array  # (n, size)
    mix: Callable[[int], Array]
    lr: Callable[[int], float]

    def gradient(self, x: Array) -> Array:
        return np.einsum("nij,nj->ni", self.a, x - self.b)


Recursion = Callable[[Problem, int, float], Array]


class Uneven(Topology):
    """Directed, and its rows don't sum to 1: node i gives to the i % 3 + 1 that follow, others than in the last round."""

    def mixing(self, members: Sequence[Member], round: int) -> Mixing:
        n = len(members)
        return Mixing.push(n, [((i + 1 + (k + round) % max(n - 1, 1)) % n, i) for i in range(n) for k in range(i % 3 + 1)])


def gossip(p: Problem, steps: int, sign: float) -> Array:
    """x <- W (x - lr g)."""
    x = p.start
    for t in range(steps):
        x = p.mix(t) @ (x - sign * p.lr(t) * p.gradient(x))
    return x


def gossip_with_momentum(p: Problem, steps: int, sign: float, shared: bool) -> Array:
    """m <- beta m + g; x <- W (x - lr m); m <- W m where it is shared."""
    x, m = p.start, np.zeros_like(p.start)
    for t in range(steps):
        m = sign * BETA * m + p.gradient(x)
        x = p.mix(t) @ (x - p.lr(t) * m)
        m = p.mix(t) @ m if shared else m
    return x


def tracked_momentum(p: Problem, steps: int, sign: float, forget: float = 0.0) -> Array:
    """m <- beta m + g + (1 - beta) d; x <- W (x - lr m); d <- (1 - forget) d + W m - m; m <- W m."""
    x, m, d = p.start, np.zeros_like(p.start), np.zeros_like(p.start)
    for t in range(steps):
        d = (1 - forget) * d
        m = BETA * m + p.gradient(x) + sign * (1 - BETA) * d
        x = p.mix(t) @ (x - p.lr(t) * m)
        mixed = p.mix(t) @ m
        m, d = mixed, d + mixed - m
    return x


def overlapped(p: Problem, steps: int, sign: float) -> Array:
    """x <- W x - lr g(x); what was published after the last step is not combined yet."""
    x, published = p.start, None
    for t in range(steps):
        x_next = x - sign * p.lr(t) * p.gradient(x)
        if published is not None:
            x_next = x_next + p.mix(t - 1) @ published - published
        x = published = x_next
    return x


def od_sgd(p: Problem, steps: int, sign: float, local: float, beta: float) -> Array:
    """m <- beta m + g(v); q <- x - lr m; v <- x - local lr g(v); x <- W q. Returns v."""
    x, v, m = p.start, p.start, np.zeros_like(p.start)
    for t in range(steps):
        g = p.gradient(v)
        m = beta * m + g
        v = x - sign * local * p.lr(t) * g
        x = p.mix(t) @ (x - p.lr(t) * m)
    return v


def relay_sum(p: Problem, steps: int, sign: float) -> Array:
    """Along the edges of a tree, with the messages of the round before on the right:

    m_ij = x_i - lr g_i + sum of m_ki over k other than j; c_ij = 1 + sum of c_ki; x_i <- x_i + sum of (m_ji - c_ji x_i) / n.
    """
    x, n = p.start, len(p.start)
    edges = [(i, j) for i, j in zip(*np.nonzero(p.mix(0)), strict=True) if i != j]
    m, c = {edge: np.zeros_like(x[0]) for edge in edges}, dict.fromkeys(edges, 0)
    for t in range(steps):
        x = x - p.lr(t) * p.gradient(x)
        behind = {(i, j): [(k, to) for k, to in edges if to == i and k != j] for i, j in edges}
        m = {(i, j): x[i] + sum(m[edge] for edge in behind[i, j]) for i, j in edges}
        c = {(i, j): 1 + sum(c[edge] for edge in behind[i, j]) for i, j in edges}
        x = np.stack([x[i] + sign * sum(m[j, k] - c[j, k] * x[i] for j, k in edges if k == i) / n for i in range(n)])
    return x


def quasi_global(p: Problem, steps: int, sign: float) -> Array:
    """x_new = W (x - lr (g + beta m)); m <- mu m + (1 - mu) (x - x_new) / lr."""
    x, m = p.start, np.zeros_like(p.start)
    for t in range(steps):
        new = p.mix(t) @ (x - p.lr(t) * (p.gradient(x) + sign * BETA * m))
        m = MU * m + (1 - MU) * (x - new) / p.lr(t)
        x = new
    return x


def local(p: Problem, steps: int, sign: float, period: int, switch: int = 0) -> Array:
    """Momentum SGD; x and m are mixed in every step up to `switch`, and in every `period`-th from then on."""
    x, m = p.start, np.zeros_like(p.start)
    since = exchanges = 0
    for t in range(steps):
        m = sign * BETA * m + p.gradient(x)
        x = x - p.lr(t) * m
        since += 1
        if t + 1 <= switch or since == period:
            w = p.mix(exchanges)
            x, m, since, exchanges = w @ x, w @ m, 0, exchanges + 1
    return x


def pga(p: Problem, steps: int, sign: float, every: int) -> Array:
    """Momentum SGD; x and m are mixed by W, but averaged in every `every`-th step. W goes on from where it was."""
    x, m, exchanges = p.start, np.zeros_like(p.start), 0
    for t in range(steps):
        m = sign * BETA * m + p.gradient(x)
        x = x - p.lr(t) * m
        if (t + 1) % every == 0:
            x, m = np.ones_like(x) * x.mean(0), np.ones_like(m) * m.mean(0)
        else:
            w = p.mix(exchanges)
            x, m, exchanges = w @ x, w @ m, exchanges + 1
    return x


def block_cyclic(p: Problem, steps: int, sign: float, groups: int) -> Array:
    """In step t only the columns k of group t mod `groups`: m_k <- beta m_k + g_k; x_k <- W (x_k - lr m_k); m_k <- W m_k."""
    x, m, size = p.start.copy(), np.zeros_like(p.start), p.start.shape[1] // groups
    for t in range(steps):
        k, w = slice(t % groups * size, (t % groups + 1) * size), p.mix(t // groups)
        m[:, k] = sign * BETA * m[:, k] + p.gradient(x)[:, k]
        x[:, k] = w @ (x[:, k] - p.lr(t) * m[:, k])
        m[:, k] = w @ m[:, k]
    return x


def dreamddp(p: Problem, steps: int, sign: float, period: int) -> Array:
    """Momentum SGD; after step t the columns of group t mod `period` are published, and W s - s joins after step t + 1."""
    x, m, size = p.start.copy(), np.zeros_like(p.start), p.start.shape[1] // period
    for t in range(steps):
        before = x, m
        m = BETA * m + p.gradient(x)
        x = x - p.lr(t) * m
        if t:
            k, w = slice((t - 1) % period * size, ((t - 1) % period + 1) * size), p.mix((t - 1) // period)
            x[:, k] += sign * (w @ before[0][:, k] - before[0][:, k])
            m[:, k] += sign * (w @ before[1][:, k] - before[1][:, k])
    return x


def slowmo(p: Problem, steps: int, sign: float, period: int, beta: float, alpha: float) -> Array:
    """Every `period` steps u <- beta u + (x_0 - x) / lr; x <- x_0 - alpha lr u."""
    x, u = p.start, np.zeros_like(p.start)
    start = x
    for t in range(steps):
        x = x - p.lr(t) * p.gradient(x)
        if (t + 1) % period == 0:
            x = p.mix(t // period) @ x
            u = sign * beta * u + (start - x) / p.lr(t)
            x = start = start - alpha * p.lr(t) * u
    return x


def elastic(p: Problem, steps: int, sign: float, force: float) -> Array:
    """y = x - lr g; x <- y + force (W y - y)."""
    x = p.start
    for t in range(steps):
        y = x - p.lr(t) * p.gradient(x)
        x = y + sign * force * (p.mix(t) @ y - y)
    return x


def diloco(
    p: Problem,
    steps: int,
    sign: float,
    period: int,
    rate: float,
    mu: float,
    pull: int = 0,
    kappa: float = 0.0,
    beta: float = 0.0,
) -> Array:
    """Every `period` steps D = x_0 - W x, u <- mu u + D, x_0 <- x_0 - rate (D + mu u); every `pull`-th step pulls to x_0.

    The inner steps are m <- beta m + g, x <- x - lr m; a pull leaves m alone.
    """
    x, u, m = p.start, np.zeros_like(p.start), np.zeros_like(p.start)
    anchor = x
    for t in range(steps):
        if pull and (t % period + 1) % pull == 0:
            x = x - kappa * (x - anchor)
        else:
            m = beta * m + p.gradient(x)
            x = x - p.lr(t) * m
        if (t + 1) % period == 0:
            moved = anchor - p.mix(t // period) @ x
            u = sign * mu * u + moved
            x = anchor = anchor - rate * (moved + mu * u)
    return x


def oldsgd(p: Problem, steps: int, sign: float, period: int) -> Array:
    """Every `period` steps x <- W x_before - sum of lr g since, with x_before the model a period ago."""
    x, before = p.start, None
    summed = np.zeros_like(p.start)
    for t in range(steps):
        step = p.lr(t) * p.gradient(x)
        x, summed = x - step, summed + step
        if (t + 1) % period == 0:
            if before is not None:
                x = p.mix(t // period - 1) @ before - sign * summed
            before, summed = x, np.zeros_like(x)
    return x


def extra(p: Problem, steps: int, sign: float) -> Array:
    """x_1 = W x_0 - lr g_0; x_new = x + W x - (x_old + W x_old) / 2 - lr g + lr_old g_old."""
    old, w = p.start, p.mix(0)
    step = p.lr(0) * p.gradient(old)
    x = w @ old - step
    for t in range(1, steps):
        new = p.lr(t) * p.gradient(x)
        x, old = x + w @ x - (old + w @ old) / 2 - new + sign * step, x
        step = new
    return x


def d2(p: Problem, steps: int, sign: float) -> Array:
    """x_new = W (x - lr g + c); c <- x_new - (x - lr g)."""
    x, c = p.start, np.zeros_like(p.start)
    for t in range(steps):
        half = x - p.lr(t) * p.gradient(x)
        x = p.mix(t) @ (half + sign * c)
        c = x - half
    return x


def gradient_tracking(p: Problem, steps: int, sign: float) -> Array:
    """x <- W (x - lr y); y <- W y + g_new - g_old, y_0 = g_0."""
    x = p.start
    g = y = p.gradient(x)
    for t in range(steps):
        x = p.mix(t) @ (x - p.lr(t) * y)
        new = p.gradient(x)
        y = p.mix(t) @ y + new - sign * g
        g = new
    return x


def momentum_tracking(p: Problem, steps: int, sign: float) -> Array:
    """u <- beta u + g; x <- W x - lr (u - c); c <- W (c - u) + u."""
    x, u, c = p.start, np.zeros_like(p.start), np.zeros_like(p.start)
    for t in range(steps):
        u = BETA * u + p.gradient(x)
        x = p.mix(t) @ x - p.lr(t) * (u - sign * c)
        c = p.mix(t) @ (c - u) + u
    return x


def decentlam(p: Problem, steps: int, sign: float) -> Array:
    """g~ = (x - W (x - lr g)) / lr; m <- beta m + g~; x <- x - lr m."""
    x, m = p.start, np.zeros_like(p.start)
    for t in range(steps):
        tilde = (x - p.mix(t) @ (x - p.lr(t) * p.gradient(x))) / p.lr(t)
        m = sign * BETA * m + tilde
        x = x - p.lr(t) * m
    return x


def gradient_gossip(p: Problem, steps: int, sign: float) -> Array:
    """m <- beta m + W g; x <- W x - lr m."""
    x, m = p.start, np.zeros_like(p.start)
    for t in range(steps):
        m = sign * BETA * m + p.mix(t) @ p.gradient(x)
        x = p.mix(t) @ x - p.lr(t) * m
    return x


def push_sum(p: Problem, steps: int, sign: float) -> Array:
    """x <- P (x - lr g(x / w)); w <- P w; P's columns sum to 1. Returns x / w."""
    x, w = p.start, np.ones((len(p.start), 1))
    for t in range(steps):
        x, w = p.mix(t) @ (x - sign * p.lr(t) * p.gradient(x / w)), p.mix(t) @ w
    return x / w


shared_momentum = partial(gossip_with_momentum, shared=True)
local_momentum = partial(gossip_with_momentum, shared=False)


def largest(x: Array, k: int) -> Array:
    """x where it is among the k largest in magnitude, else 0."""
    kept = np.zeros_like(x)
    places = np.argsort(-np.abs(x))[:k]
    kept[places] = x[places].astype(np.float32)
    return kept


def levels(x: Array) -> Array:
    """x in 127 levels of its largest magnitude, scale in float32."""
    scale = np.float64(np.float32(np.abs(x).max() / 127))
    return np.round(x / scale) * scale


def swaps_of_changes(x: Array, y: Array, updates: Array, k: int) -> tuple[Array, Array]:
    """Two models after one swap for each of the updates to x: r <- r + C(x - r), a = C((r - y) / 2), y + a, x - a, r - a.

    C keeps the k largest; the first swap is of values in levels, both ways.
    """
    x, y, replica = x.copy(), y.copy(), np.zeros_like(x)
    for step, update in enumerate(updates):
        x += update
        replica = replica + largest(x - replica, k) if step else levels(x)
        apart = (replica - y) / 2
        answer = largest(apart, k) if step else levels(apart)
        x, y, replica = x - answer, y + answer, replica - answer
    return x, y
