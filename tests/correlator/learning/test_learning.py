"""Priors from answers: counted by incident, proposed in a file that a site can use, never applied automatically."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from correlator.edges import load as edge_files
from correlator.learning.backtest import replay
from correlator.learning.feedback import Answer, give
from correlator.learning.judged import LEAST, MOST
from correlator.learning.priors import Learned, as_file, learned, lines
from faultline.cli import app
from store.door import Door
from store.tables import FEEDBACK, RUNS
from tests.correlator.rows import CAPTURES, answer, concluded

FLAP = next(c for c in CAPTURES if c.name == "mgmt_flap_long")
NOW = datetime(2026, 11, 21, 9)
EDGES, _ = edge_files.load()


@pytest.fixture
def store() -> Iterator[Door]:
    with concluded(FLAP) as opened:
        yield opened


def test_the_edges_of_the_chain_are_judged_once_for_an_incident(store: Door) -> None:
    assert lines(learned(store, EDGES)) == ["no answers yet: give them on the page of a job or an incident"]
    for minute, author in enumerate(("ada", "bob", "eve")):
        give(store, "15", Answer("confirmed", author=author), NOW + timedelta(minutes=minute))
    found = learned(store, EDGES).edges
    (verdict,) = store.ask(sa.select(RUNS.c.document).where(RUNS.c.run_key == "15"))
    assert found and all(f'"{one.edge.id}"' in verdict["document"] for one in found)
    assert {(one.confirmed, one.wrong) for one in found} == {(1, 0)}
    assert all(one.edge.prior < one.prior <= MOST for one in found if one.edge.prior < MOST)
    assert any(one.edge.prior < MOST for one in found)
    give(
        store, "15", Answer("wrong", "infra.gpu", author="bob"), NOW + timedelta(hours=1)
    )  # disagreement is based on more knowledge
    again = learned(store, EDGES).edges
    assert {(one.confirmed, one.wrong) for one in again} == {(0, 1)}
    assert all(one.prior < one.edge.prior for one in again)


def test_answers_to_what_is_not_stated_any_more_are_reported_and_not_counted(store: Door) -> None:
    give(store, "15", Answer("confirmed"), NOW)
    with store.write() as writer:
        writer.change(sa.update(FEEDBACK).values(said_host="gpu77"))
    lessons = learned(store, EDGES)
    assert (lessons.edges, lessons.uncounted) == ([], 1) and "not counted: 1 answers" in lines(lessons)[0]


@given(prior=st.floats(0.02, 0.98), confirmed=st.integers(0, 10_000), wrong=st.integers(0, 10_000))
def test_a_prior_goes_to_the_share_that_was_right_and_never_beyond_bounds(
    prior: float, confirmed: int, wrong: int
) -> None:
    one = Learned(replace(EDGES[0], prior=prior), confirmed, wrong)
    share = confirmed / (confirmed + wrong) if confirmed + wrong else prior
    low, high = sorted((prior, share))
    assert max(LEAST, low) - 0.001 <= one.prior <= min(MOST, high) + 0.001
    assert Learned(one.edge, confirmed + 1, wrong).prior >= one.prior >= Learned(one.edge, confirmed, wrong + 1).prior


def test_the_file_is_a_sites_edges_and_changes_nothing_but_priors(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(as_file([Learned(edge, 3, 1) for edge in EDGES]), encoding="utf-8")
    found, problems = edge_files.load([path])
    assert not problems and [edge.id for edge in found] == [edge.id for edge in EDGES]
    for now, before in zip(found, EDGES, strict=True):
        assert now.prior == Learned(before, 3, 1).prior and "3 incidents confirmed, 1 wrong" in now.reference
        assert replace(now, prior=before.prior, reference=before.reference, file=before.file) == before


@pytest.mark.long
def test_the_command_proposes_and_the_back_test_shows_what_that_would_change(store: Door, tmp_path: Path) -> None:
    path, before = tmp_path / "priors.toml", answer(store)
    for hour in range(300):  # hundreds of incidents of the past with another cause
        give(store, "15", Answer("wrong", "infra.gpu", author=f"op{hour}"), NOW + timedelta(hours=hour))
    with store.write() as writer:
        writer.change(sa.update(FEEDBACK).values(incident_id=sa.func.concat("INC-", FEEDBACK.c.author)))
    path.write_text(as_file(learned(store, EDGES).edges), encoding="utf-8")
    found = replay(store, [path])
    assert found and answer(store) == before, "a proposal must not change a verdict"


def test_check_answers_by_hand(tmp_path: Path) -> None:
    from store import open_store

    with open_store(tmp_path / "data"):
        pass
    run = CliRunner().invoke(app, ["check", "--answers", "--data", str(tmp_path / "data")])
    assert run.exit_code == 0 and "no answers yet" in run.stdout
    taken = tmp_path / "taken.toml"
    taken.write_text("")
    for refused_one, words in (
        (["--write", str(taken)], "--write belongs to --answers"),
        (["--answers", "--write", str(taken), "--data", str(tmp_path / "data")], "exists already"),
    ):
        refused = CliRunner().invoke(app, ["check", *refused_one])
        assert refused.exit_code != 0 and words in (refused.output + str(refused.exception))
