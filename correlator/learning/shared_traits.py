"""What those that were hurt have in common and the others have not: a rack, a switch, a user, a setting of NCCL.

A trait counts for as much as chance does not explain: the one-sided test of Fisher, that so many of the hurt would have it if
they had been drawn at random, times the number of traits that were tried (Bonferroni). It shows where to look. It is no
verdict: who shares a switch may also share a user.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import exp, lgamma

import polars as pl

#: A trait is shared if chance explains it with at most this probability, after all tries are counted.
CHANCE = 0.05

#: What fewer hurt ones have in common cannot be distinguished from chance.
FEWEST = 2

#: Traits of the same ones are named in this order: places first, then whose and what they were.
ORDER = ("node", "switch", "partition", "user", "account", "name", "job", "environment")

#: Columns of the traits that are compared: who has it, what it is, and its value.
SCHEMA = {"unit": pl.String, "kind": pl.String, "value": pl.String}


@dataclass(frozen=True)
class Shared:
    """Traits that the same ones have (kind and value), by how many of the hurt and of the others, and what chance explains:
    the probability ``p`` for this one, ``chance`` after all tries."""

    traits: tuple[tuple[str, str], ...]
    hurt: int
    others: int
    p: float
    chance: float


@dataclass(frozen=True)
class Comparison:
    """``hurt`` and ``others`` were compared in ``tried`` traits; ``shared`` are those beyond chance, the least likely first."""

    hurt: int
    others: int
    tried: int
    shared: tuple[Shared, ...]

    @property
    def says_why_not(self) -> str:
        """Why nothing is shared, for people; empty if something is."""
        if self.shared:
            return ""
        if self.hurt < FEWEST:
            return "One alone has nothing in common with others that were hurt." if self.hurt else "None was hurt."
        if not self.others:
            return "There is nobody to compare with: all were hurt."
        return f"Nothing beyond chance in {self.tried} traits of {self.hurt} that were hurt and {self.others} that were not."


def compare(traits: pl.DataFrame, hurt: Collection[str], units: Collection[str], chance: float = CHANCE) -> Comparison:
    """Compares those that were ``hurt`` with the other ``units``. ``traits`` has the columns of ``SCHEMA``."""
    all_units, bad = set(units), set(hurt) & set(units)
    size, others = len(bad), len(all_units) - len(bad)
    counts = (
        traits.filter(pl.col("unit").is_in(list(all_units)) & pl.col("value").is_not_null() & (pl.col("value") != ""))
        .unique()
        .with_columns(pl.col("unit").is_in(list(bad)).alias("hurt"))
        .group_by("kind", "value")
        .agg(pl.col("hurt").sum().cast(pl.Int64), pl.len().cast(pl.Int64).alias("all"), pl.col("unit").hash().sum().alias("members"))
    )  # fmt: skip
    # What everybody has, and what one has, could not tell them apart; it is no try.
    tried = counts.filter((pl.col("all") > 1) & (pl.col("all") < len(all_units)))
    if size < FEWEST or not others or tried.is_empty():
        return Comparison(size, others, tried.height, ())
    tries = tried.n_unique("members")  # traits of the same ones are one try
    found = []
    for alike in tried.filter(pl.col("hurt") >= FEWEST).partition_by("members", maintain_order=False):
        with_it, having = int(alike["hurt"][0]), int(alike["all"][0])
        p = at_least(with_it, size, having, len(all_units))
        if p * tries <= chance:
            names = tuple(sorted(zip(alike["kind"].to_list(), alike["value"].to_list(), strict=True), key=_named))
            found.append(Shared(names, with_it, having - with_it, p, min(1.0, p * tries)))
    found.sort(key=lambda one: (one.p, -one.hurt, one.traits))
    return Comparison(size, others, tried.height, tuple(found))


def _named(trait: tuple[str, str]) -> tuple[int, str, str]:
    kind, value = trait
    return (ORDER.index(kind) if kind in ORDER else len(ORDER), kind, value)


def at_least(seen: int, drawn: int, having: int, population: int) -> float:
    """The probability that at least ``seen`` of ``drawn`` have a trait that ``having`` of the ``population`` have."""
    most = min(drawn, having)
    total = _ways(population, drawn)
    return min(1.0, sum(exp(_ways(having, k) + _ways(population - having, drawn - k) - total)
                        for k in range(max(seen, drawn - (population - having)), most + 1)))  # fmt: skip


def _ways(of: int, chosen: int) -> float:
    """The logarithm of the number of choices."""
    return lgamma(of + 1) - lgamma(chosen + 1) - lgamma(of - chosen + 1)
