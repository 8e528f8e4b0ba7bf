"""Noisy-OR with a leak: the probability that one of several candidate causes had an effect, and of each of them.

Each candidate is an independent cause that may have failed to act; the leak is everything that is not among the
candidates (Pearl, Probabilistic Reasoning in Intelligent Systems, 1988, 4.3; Henrion's leak, 1987). Weights are odds
against coincidence, as ``evidence.weight_of`` makes them; the leak is on the same scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def alone(weight: float, leak: float) -> float:
    """The probability 0..1 that a candidate caused the effect, if only it and the leak could have."""
    return weight / (weight + leak)


def explained(weights: Sequence[float], leak: float) -> float:
    """The probability 0..1 that any of the candidates did: 1 minus that none acted and the leak remains."""
    return 1.0 - math.prod(1.0 - alone(weight, leak) for weight in weights)


def shares(weights: Sequence[float], leak: float) -> list[float]:
    """The share of ``explained`` of each candidate, by its odds; together with the leak's share they sum to 1."""
    total = sum(weights)
    if not total:
        return [0.0] * len(weights)
    found = explained(weights, leak)
    return [found * weight / total for weight in weights]
