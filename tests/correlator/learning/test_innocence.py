"""The share of a kind of fact that caused nothing.

It is counted from answers, and applied only from a file that is loaded explicitly.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from correlator.conclusions import Pass
from correlator.edges import load
from correlator.engine import clusters_of, conclude_cluster, correlate, load_edges
from correlator.evidence.weigh import BaseRates, rate_of
from correlator.learning.base_rates import MONTH_S, Innocence, innocence, lines
from correlator.learning.feedback import Answer, answers, give
from correlator.learning.judged import LEAST, PRIOR_ANSWERS
from correlator.learning.priors import Learned, as_file, learned
from correlator.live.ticker import Ticker
from correlator.model import fact_index
from correlator.model.nouns import Fact
from faultline.cli import app
from store import open_store
from store.door import Door
from store.tables import FEEDBACK
from tests.correlator.live.test_streaming import add, made_rows, stored, with_settings
from tests.correlator.rows import CAPTURES, answer, concluded, rows_of

FLAP = next(c for c in CAPTURES if c.name == "mgmt_flap_long")
NOW = datetime(2026, 11, 21, 9)


@pytest.fixture
def store() -> Iterator[Door]:
    with concluded(FLAP) as opened:
        yield opened


def now_concluded(store: Door, paths: tuple[Path, ...] = ()) -> list[Pass]:
    return [conclude_cluster(store, c, load_edges(paths)) for c in clusters_of(store)]


def by_kind(store: Door) -> dict[str, tuple[int, int, int, int]]:
    found = innocence(now_concluded(store), answers(store), {})
    return {one.kind: (one.seen, one.blamed, one.confirmed, one.wrong) for one in found}


def many(store: Door, reported: Answer, count: int) -> None:
    """This many incidents of the past, with one answer each."""
    for hour in range(count):
        give(store, "15", replace(reported, author=f"{reported.answer}{hour}"), NOW + timedelta(hours=hour))
    with store.write() as writer:
        writer.change(sa.update(FEEDBACK).values(incident_id=sa.func.concat("INC-", FEEDBACK.c.author)))


@given(
    seen=st.integers(1, 500),
    share=st.floats(0, 1),
    confirmed=st.integers(0, 5000),
    wrong=st.integers(0, 5000),
    days=st.floats(0, 1e5),
)
def test_the_share_falls_with_confirmed_blames_only_and_never_below_those_that_nobody_blamed(
    seen: int, share: float, confirmed: int, wrong: int, days: float
) -> None:
    blamed = round(share * seen)
    one = Innocence("gpu.xid", seen, blamed, confirmed, wrong, days * 86400)
    assert max(LEAST, 1 - blamed / seen) - 0.001 <= one.innocent <= 1
    assert one.innocent == 1 or (confirmed and blamed)
    assert replace(one, confirmed=confirmed + 1).innocent <= one.innocent <= replace(one, wrong=wrong + 1).innocent
    assert replace(one, before=0.3).innocent == one.innocent, "what is in force is no evidence"
    assert 0 < one.rate(one.innocent) <= one.rate(1.0)


def test_an_answer_moves_the_share_a_little_and_dozens_replace_the_assumption() -> None:
    shares = [Innocence("gpu.xid", 40, 40, n, 0, 0.0).innocent for n in (0, 1, int(PRIOR_ANSWERS), 400)]
    assert shares == pytest.approx([1.0, 0.952, 0.5, 0.048])
    assert Innocence("gpu.xid", 40, 40, 20, 20, 0.0).innocent > shares[2]


@given(
    times=st.lists(st.floats(0, 1e6), max_size=40),
    share=st.floats(0.02, 1),
    at=st.floats(0, 1e6),
    seed=st.integers(0, 99),
)
def test_a_base_rate_counts_that_share_of_the_facts_before_the_hour_in_any_order(
    times: list[float], share: float, at: float, seed: int
) -> None:
    facts = [Fact("gpu.xid", t, None, 0.1, "n1") for t in times]
    mixed = random.Random(seed).sample(facts, len(facts))
    plain, some, again = (
        BaseRates(fact_index.by_kind(f), [0.0, 5e5], 0.0, s) for f, s in ((facts, None), (facts, {"gpu.xid": share}), (mixed, {"gpu.xid": share}))
    )  # fmt: skip
    reported, exposure = plain.counted("gpu.xid", at)
    assert reported == sum(t < at // 3600 * 3600 for t in times)
    assert plain.of("gpu.xid", at) == rate_of(reported, exposure)
    assert some.of("gpu.xid", at) == again.of("gpu.xid", at) == rate_of(share * reported, exposure)
    assert some.of("link.outage", at) == plain.of("link.outage", at)


def test_who_confirms_a_chain_confirms_its_causes_and_who_finds_it_wrong_speaks_of_its_root(store: Door) -> None:
    assert by_kind(store) == {}
    for minute, author in enumerate(("ada", "bob")):  # one incident is one observation
        give(store, "15", Answer("confirmed", author=author), NOW + timedelta(minutes=minute))
    confirmed = by_kind(store)
    assert confirmed["link.outage"][1:] == (1, 1, 0) and confirmed["node.down"][1:] == (1, 1, 0)
    give(store, "15", Answer("wrong", "infra.gpu", author="bob"), NOW + timedelta(hours=1))
    wrong = by_kind(store)
    assert wrong["link.outage"][1:] == (1, 0, 1), "who differs has looked"
    assert wrong["node.down"] == confirmed["node.down"], "what followed from the root may well be true"
    rows = answers(store)
    with store.write() as writer:
        writer.change(sa.update(FEEDBACK).values(said_host="gpu77"))
    assert by_kind(store) == {}, "what is not said any more does not count"
    found = now_concluded(store)
    for one in found:
        random.Random(3).shuffle(one.result.facts)
        random.Random(4).shuffle(one.basis.stories)
    assert {o.kind: (o.seen, o.blamed, o.confirmed, o.wrong) for o in innocence(found, rows, {})} == wrong


def test_a_proposal_changes_nothing_until_its_file_is_named(store: Door, tmp_path: Path) -> None:
    before = answer(store)
    many(store, Answer("confirmed"), 60)
    rates = innocence(now_concluded(store), answers(store), {})
    path = tmp_path / "answers.toml"
    path.write_text(as_file(learned(store, load.load()[0]).edges, rates=rates), encoding="utf-8")
    rules, problems = load.rules([path])
    assert problems == [] and rules.innocent == {one.kind: one.innocent for one in rates}
    assert rules.innocent["link.outage"] == pytest.approx(0.25, abs=0.001)
    correlate(store)
    assert answer(store) == before, "answers must not change a verdict by themselves"

    def chance(paths: tuple[Path, ...]) -> float:
        (basis,) = (one.basis for one in now_concluded(store, paths))
        assert basis.rates is not None
        return basis.rates.of("link.outage", basis.last + 7200.0)  # the capture lasts minutes: its hour has to be over

    (now,) = (one.basis for one in now_concluded(store))
    assert now.rates is not None
    reported, exposure = now.rates.counted("link.outage", now.last + 7200.0)
    assert reported and chance((path,)) == rate_of(0.25 * reported, exposure) < chance(()) == rate_of(
        reported, exposure
    )
    assert (
        f"link.outage: base rate {rates[0].rate(1.0):.3g} -> {rates[0].rate(0.25):.3g} per host and 30 days"
        in lines(rates)[0]
    )


def test_to_use_the_file_and_to_ask_again_counts_no_answer_twice(tmp_path: Path) -> None:
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    config = tmp_path / "faultline.toml"
    config.write_text(f"edges = ['{one}']\n")
    data = tmp_path / "data"
    with open_store(data) as kept:
        kept.add(rows_of(FLAP))
        correlate(kept)
        many(kept, Answer("confirmed"), 20)
        many(kept, Answer("wrong", "infra.gpu"), 20)
    for written, more in ((one, []), (two, ["--config", str(config)])):
        run = CliRunner().invoke(app, ["check", "--answers", "--data", str(data), "--write", str(written), *more])
        assert run.exit_code == 0 and "link.outage: base rate" in run.stdout and "20 incidents confirmed" in run.stdout
    assert one.read_text() == two.read_text()
    assert load.rules([one])[0].innocent["link.outage"] < 1
    carried = {name: entry.table.get("tests") for name, entry in load.entries([one]).items()}
    assert carried == {name: entry.table.get("tests") for name, entry in load.entries().items()}, "tests go with edges"


def test_the_prior_before_all_answers_is_kept_beside_the_new_one() -> None:
    edge = load.load()[0][0]
    once = Learned(edge, 4, 9)
    again = Learned(replace(edge, prior=once.prior), 4, 9, judged=edge.prior)
    assert again.prior == once.prior and Learned(replace(edge, prior=once.prior), 4, 9).prior != once.prior


@pytest.mark.long
def test_ticks_with_base_rates_of_a_file_say_what_a_full_pass_says(tmp_path: Path) -> None:
    path = tmp_path / "rates.toml"
    path.write_text(
        "".join(
            f"[[base_rate]]\nkind = '{kind}'\ninnocent = 0.02\n" for kind in ("link.outage", "gpu.xid", "node.down")
        )
    )
    rows = sorted(made_rows(5, 900), key=lambda a: a[0])
    partly, weights = 0, []
    with open_store(None) as store:
        with_settings(store)
        ticker = Ticker(store, edge_paths=[path])
        for place in range(0, len(rows), 180):
            add(store, rows[place : place + 180])
            partly += not ticker.tick().full
        ticked = stored(store)
        correlate(store, edge_paths=[path])
        assert ticked == stored(store) and partly >= 2
        for paths in ((path,), ()):
            found = now_concluded(store, paths)
            weights.append([h.coincidence for c in found for s in c.basis.stories for h in s.hops])
    assert len(weights[0]) == len(weights[1]) and all(a <= b for a, b in zip(*weights, strict=True))
    assert weights[0] != weights[1], "the file says something"


def test_rates_are_reported_per_host_and_month() -> None:
    one = Innocence("gpu.xid", 9, 9, 0, 0, 9 * MONTH_S)
    assert one.rate(1.0) == pytest.approx(1.0), "nine in nine host-months, and the prior of one in one"
