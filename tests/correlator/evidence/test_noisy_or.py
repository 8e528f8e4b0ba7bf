"""The noisy-OR: one candidate against the leak, several together, and the share of each."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from correlator.evidence.chains import Chain
from correlator.evidence.noisy_or import alone, explained, shares
from correlator.model.nouns import Fact
from correlator.verdicts.chain_weights import candidates

WEIGHTS = st.lists(st.floats(1e-6, 30.0), max_size=8)
LEAKS = st.floats(0.08, 1.0)


@pytest.mark.parametrize(
    ("weights", "leak", "told"),
    [
        ((), 0.98, ()),
        ((0.98,), 0.98, (0.5,)),  # equal odds
        ((2.94,), 0.98, (0.75,)),
        (
            (0.98, 0.98),
            0.98,
            (0.375, 0.375),
        ),  # one of two equal ones: neither outweighs the leak alone, together they do
        ((2.94, 0.98), 0.98, (0.875 * 0.75, 0.875 * 0.25)),
        ((0.0, 0.0), 0.98, (0.0, 0.0)),
    ],
)
def test_what_falls_to_each(weights: tuple[float, ...], leak: float, told: tuple[float, ...]) -> None:
    assert shares(weights, leak) == pytest.approx(list(told))


@given(WEIGHTS, LEAKS)
def test_shares_and_the_leak_are_one(weights: list[float], leak: float) -> None:
    left = math.prod(leak / (leak + w) for w in weights)
    assert sum(shares(weights, leak)) + left == pytest.approx(1.0)


@given(WEIGHTS, LEAKS, st.randoms())
def test_order_does_not_matter(weights: list[float], leak: float, random: object) -> None:
    mixed = list(weights)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert explained(mixed, leak) == pytest.approx(explained(weights, leak))


@given(WEIGHTS, LEAKS, st.floats(1e-6, 30.0))
def test_one_more_candidate_makes_the_leak_less_likely_and_nobody_else_surer(
    weights: list[float], leak: float, more: float
) -> None:
    assert explained([*weights, more], leak) >= explained(weights, leak) - 1e-12
    before, after = shares(weights, leak), shares([*weights, more], leak)
    assert all(now <= then + 1e-12 for now, then in zip(after, before, strict=False))


@given(st.floats(1e-6, 30.0), LEAKS, LEAKS)
def test_a_greater_leak_leaves_less(weight: float, one: float, other: float) -> None:
    assert (alone(weight, one) >= alone(weight, other)) == (one <= other) or one == pytest.approx(other)


def outage(host: str, device: str, start: float) -> Fact:
    return Fact("link.outage", start, start + 60.0, 0.5, host=host, device=device)


def test_one_trouble_reported_twice_is_one_candidate() -> None:
    """Two outages of one port do not confirm each other, as two witnesses would; that of another host is a second one."""
    one, again, other = outage("gpu01", "eth0", 0.0), outage("gpu01", "eth0", 90.0), outage("gpu02", "eth0", 0.0)
    chains = [Chain(one, (), 0.4), Chain(again, (), 0.4), Chain(other, (), 0.8)]
    assert [root for root, _ in candidates(chains, 0.98)] == [one, other]
    assert [share for _, share in candidates(chains, 0.98)] == pytest.approx(shares([0.8, 0.8], 0.98))
    assert sum(s for _, s in candidates(chains[:2], 0.98)) == pytest.approx(alone(0.8, 0.98))
