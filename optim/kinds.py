"""Kinds of shared state, and which kind each tensor of the known optimizers is.

The kind decides how two copies of a value are mixed. Adding differences drives a second moment negative and ends in
NaN, so it is mixed convexly; step counters take the larger. What no table names stays local.
"""

from __future__ import annotations

from enum import IntEnum


class Kind(IntEnum):
    """What a shared tensor is; the numbers travel."""

    PARAMETER = 0
    GRADIENT = 1
    BUFFER = 2  # floating, averaged: BatchNorm's running mean
    SIGNED = 3  # SGD's momentum, Adam's first moment: like parameters
    NONNEGATIVE = 4  # Adam's second moment, BatchNorm's running variance: convex mixing, increments add, decrements scale
    COUNTER = 5  # steps: the larger
    NEWEST = 6  # integer buffers: the newest (by the owner's step) wins
    RESIDUAL = 7
