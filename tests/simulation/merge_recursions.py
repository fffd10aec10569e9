"""Merges that weigh models by age, progress or loss, and the moving average, as plain recursions in numpy (float64).

As in `recursions`: written from the formulas, without `optim`; each returns x after `steps` steps, and `sign` multiplies one
term.
`at` (n,) are the steps at which the nodes begin.
"""

from __future__ import annotations

import numpy as np

from tests.simulation.recursions import Array, Problem


def aged(p: Problem, steps: int, sign: float, power: float, at: Array) -> Array:
    """x_i <- y_i + sum_j w_ij (1 + max(t_i - t_j, 0))^-power (y_j - y_i), y = x - lr g."""
    x = p.start
    counts = (1 + np.maximum(at[:, None] - at[None, :], 0)) ** (-sign * power)
    for t in range(steps):
        y = x - p.lr(t) * p.gradient(x)
        w = p.mix(t) * counts
        x = y + w @ y - w.sum(1, keepdims=True) * y
    return x


def progressive(p: Problem, steps: int, sign: float, growth: float, at: Array) -> Array:
    """x_i <- sum_j w_ij e^(growth t_j) y_j / sum_j w_ij e^(growth t_j)."""
    x = p.start
    for t in range(steps):
        w = p.mix(t) * np.exp(sign * growth * at)[None, :]
        x = w @ (x - p.lr(t) * p.gradient(x)) / w.sum(1, keepdims=True)
    return x


def loss(p: Problem, x: Array) -> Array:
    """f_i(x_i), (n,)."""
    return np.einsum("ni,nij,nj->n", x - p.b, p.a, x - p.b) / 2


def line_search(p: Problem, steps: int, sign: float, tries: int) -> Array:
    """x <- y + a (W y - y), a of 1/tries ... 1 with the least own loss."""
    x = p.start
    for t in range(steps):
        y = x - p.lr(t) * p.gradient(x)
        tried = np.stack([y + sign * a / tries * (p.mix(t) @ y - y) for a in range(1, tries + 1)])
        best = np.argmin([loss(p, candidate) for candidate in tried], axis=0)
        x = tried[best, np.arange(len(x))]
    return x


def pso(p: Problem, steps: int, sign: float, inertia: float, own: float, swarm: float) -> Array:
    """v <- inertia v + own (best - h) + swarm (q - h); x <- h + v; h = x - lr g, q the best of the neighbourhood's."""
    x, v, best = p.start, np.zeros_like(p.start), p.start
    for t in range(steps):
        h = x - p.lr(t) * p.gradient(x)
        better = (loss(p, h) <= loss(p, best)) | (t == 0)
        best = np.where(better[:, None], h, best)
        q = best[np.where(p.mix(t) > 0, loss(p, best), np.inf).argmin(1)]
        v = inertia * v + own * (best - h) + sign * swarm * (q - h)
        x = h + v
    return x


def moving_average(p: Problem, steps: int, sign: float, decay: float) -> Array:
    """The sum over past steps of (1 - decay) decay^k x(k steps ago), by its weights' sum; x of plain gossip."""
    x, path = p.start, []
    for t in range(steps):
        x = p.mix(t) @ (x - p.lr(t) * p.gradient(x))
        path.append(x)
    weights = decay ** (sign * np.arange(steps)[::-1])
    return np.einsum("t,tni->ni", weights / weights.sum(), np.stack(path))
