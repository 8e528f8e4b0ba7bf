"""Lines of shared storage in files that users can write: they count if no single user can have written enough of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from correlator.gather.corroborated import HOSTS, SAME_S, corroborated
from correlator.gather.presence import WhoExactly, WhoWasThere, changed_answers
from correlator.model.nouns import Event
from tests.correlator.making import T0, event, run, world
from tests.correlator.situations import judged, out, said

USERS = ("ada", "bob", "eve", "max")
SLOW = "RuntimeError: DataLoader timed out after 300 seconds."


def line(
    host: str, at: float = 0.0, text: str = "nfs: server nas01 not responding, still trying", **more: Any
) -> Event:
    made = event(more.pop("kind", "storage.nfs_error"), at, host, text, nfs_server="nas01")
    return replace(made, device="nas01", authority="local", known_by="name", **more)


def counted(lines: Sequence[Event], users: Sequence[str]) -> int:
    whose = dict(zip(("n1", "n2", "n3", "n4"), users, strict=True))
    return len(corroborated(lines, lambda e: frozenset({whose[e.host or ""]})))


ALL = [line(f"n{i}", at=i) for i in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("lines", "users", "count"),
    [
        (ALL, USERS, 4),
        (ALL, ("ada", "ada", "bob", "eve"), 0),
        (ALL, ("ada",) * 4, 0),
        (ALL, ("?", "bob", "eve", "max"), 0),
        (ALL[:3], USERS, 0),
        ([replace(e, time=e.time + 60.0 * i) for i, e in enumerate(ALL)], USERS, 0),
        ([*ALL[:3], replace(ALL[3], device="nas02")], USERS, 0),
        ([*ALL[:3], replace(ALL[3], message="client was evicted")], USERS, 0),
        ([*ALL, replace(ALL[3], id="other", message="client was evicted")], USERS, 4),
        ([replace(e, kind="nic.link_down") for e in ALL], USERS, 0),
    ],
    ids=["four users", "one on two hosts", "one on all", "one is not known", "three hosts", "apart", "another server", "another statement",
         "one says more", "of each host itself"],
)  # fmt: skip
def test_no_user_alone_makes_them_count(lines: Sequence[Event], users: Sequence[str], count: int) -> None:
    assert counted(lines, users) == count


@pytest.mark.parametrize("seed", range(8))
def test_at_each_line_those_of_half_a_minute_count(seed: int) -> None:
    rand = random.Random(seed)
    whose = {f"n{i}": frozenset(rand.sample((*USERS, "?"), rand.choice((1, 1, 2)))) for i in range(7)}
    lines = [line(rand.choice(sorted(whose)), rand.uniform(0, 300), id=f"{seed} {i}") for i in range(120)]
    expected = set()
    for one in lines:
        near = {e.host for e in lines if abs(e.time - one.time) <= SAME_S}
        known = [whose[host] for host in near if host is not None and "?" not in whose[host]]
        if all(sum(user not in users for users in known) >= HOSTS for user in ("nobody", *USERS)):
            expected.add(one.id)
    assert corroborated(lines, lambda e: whose[e.host or ""]) == expected


def test_very_many_lines_of_a_moment_are_each_looked_at_once() -> None:
    """A user of three hosts can write any number; to look at all of them for each would take an hour."""
    first = line("n1")
    lines = [replace(first, id=str(i), host=f"n{i % 3}", time=T0 + i * 5e-4) for i in range(100_000)]
    assert corroborated(lines, lambda e: frozenset({"ada"})) == set()


def verdict(users: Sequence[str]) -> Any:
    runs = [
        run(i, [f"n{i}"], -3600, 310 if i == 1 else 4000, "FAILED" if i == 1 else "COMPLETED", user=user)
        for i, user in enumerate(users, 1)
    ]
    # Each kernel wrote before; the output of the first run says that it waited for data.
    return said(judged(world([*ALL, *out(305, "job.exit_error", SLOW)], runs))["1"])


def test_a_run_that_waited_for_the_server_is_its() -> None:
    assert verdict(USERS) == ("infra.storage", "storage.outage", "nas01")


def test_one_user_on_all_hosts_blames_no_server() -> None:
    """She may have written all of them to excuse her run: it is open (verdicts/judge.py)."""
    assert verdict(("ada",) * 4) == ("unknown", None, None)


def test_it_counts_who_was_there() -> None:
    """A row of accounting that comes later and names another user changes what counts."""
    before, after = (run(1, ["n1"], -60, 60, user=user) for user in (None, "ada"))
    for kind, effects in ((WhoExactly, 1), (WhoWasThere, 0)):
        looks = kind.of([(T0, "n1")], 900.0)
        assert len(changed_answers(looks, [(before, after)], [before], [after], lambda _: [])) == effects
