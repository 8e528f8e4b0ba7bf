"""A compiled form that was kept is used at another moment: it is then the same as one that is compiled at that moment."""

from __future__ import annotations

import copy
import importlib
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from queries.kql import probes
from queries.kql.catalog import CATALOG, Catalog
from queries.kql.compile import Compiled, compile_script
from queries.kql.errors import KqlError
from queries.kql.moment import Moment, Now, at

running: Any = importlib.import_module("queries.kql.run")
LIBRARY = Path(__file__).parents[3] / "queries" / "library"
THEN = datetime(2026, 2, 27, 23, 59, 59, 123457)
LATER = datetime(2027, 4, 1, 0, 0, 1, 7)


def _parts(one: Compiled) -> list[Any]:
    cut = [] if one.cut is None else [*(s.statement for s in one.cut.near), one.cut.far]
    return [one.sql, one.parameters, [(part.sql, part.parameters) for part in cut]]


def _is_kept(text: str, catalog: Catalog) -> bool:
    """Whether the text depends on its moment by what moves only; then it is compared."""
    moment = Moment(THEN, may_move=True)
    try:
        made = compile_script(text, catalog, now=moment)
    except KqlError:  # its columns depend on the data
        return False
    if not moment.asked:
        moved = [running._later(one, LATER - THEN) for one in made]
        fresh = compile_script(text, catalog, now=LATER)
        assert [_parts(one) for one in moved] == [_parts(one) for one in fresh]
        assert all(type(value) is not Now for one in moved for value in one.parameters)
        assert [_parts(running._later(one, timedelta())) for one in made] == [
            _parts(one) for one in compile_script(text, catalog, now=THEN)
        ]
    return not moment.asked


def test_saved_queries_are_compiled_once() -> None:
    texts = [path.read_text() for path in sorted(LIBRARY.glob("*.kql"))]
    kept = [text for text in texts if _is_kept(text, CATALOG)]
    assert len(kept) > 0.9 * len(texts) and sum("ago(" in text for text in kept) > 50


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)], ids=["a fourth", "all"])
def test_every_function_and_operator_can_take_the_moment(every: int) -> None:
    """Its example, and the same with now() and ago() in place of each column and literal of that type."""
    texts = {
        text.replace("(T", f"({moment}").replace(", T", f", {moment}")
        for group in probes.examples().values()
        for text in filter(None, group.values())
        for moment in ("T", "now()", "ago(36h)")
    }
    kept = [text for text in sorted(texts)[::every] if _is_kept(text, probes.CATALOG)]
    assert len(kept) > 400 // every and all(
        sum(moment in text for text in kept) > 25 // every // 2 for moment in ("now()", "ago(36h)")
    )


@pytest.mark.parametrize("text", [
    "print now(), now(-1h), ago(1d), now() - 1d, now() + 1tick, ago(1d) - ago(2d)",
    "print bin(now(), 1d), startofday(now()), endofmonth(ago(1d)), datetime_part('hour', now()), tostring(now())",
    "print format_datetime(now(), 'yyyy'), dayofweek(now()), unixtime_seconds_todatetime(5) < now(), now() == now()",
    "let t = now(); let s = t - 1h; X | where T between (s .. t) and T > s + 5m | count",
    "X | where T between (ago(1d) .. 1h) | count",
    "X | where T in (now(), ago(1d)) | count",
    "X | make-series count() on T from ago(1d) to now() step 1h",
    "X | make-series count() on T in range(ago(1d), now(), 1h)",
    "range t from ago(1d) to now() step 1h",
    "range t from bin(ago(7d), 1d) to now() step 1d | count",
    "datatable(a: datetime)[datetime(2026-01-01)] | extend b = a < now()",
    "print dynamic([1]), pack_array(now()), bag_pack('a', now()), iff(now() > ago(1d), now(), ago(1h))",
    "X | summarize arg_max(T, *) by bin(T, 1h) | where T > max_of(now(), ago(1d))",
    "X | extend d = datetime_diff('day', now(), T), e = now() - T | where e < 2d",
])  # fmt: skip
def test_texts_that_name_the_moment(text: str) -> None:
    compile_script(text, probes.CATALOG, now=THEN)
    _is_kept(text, probes.CATALOG)


READS: list[Callable[[Any], Any]] = [
    lambda n: n.year, lambda n: n.isoformat(), str, repr, lambda n: f"{n:%Y}", hash, lambda n: n == THEN,
    lambda n: n < THEN, lambda n: n > THEN, lambda n: max(THEN, n), lambda n: n - THEN, lambda n: THEN - n, lambda n: n - n,
    lambda n: n.replace(hour=0), lambda n: n.timestamp(), copy.copy, lambda n: n in (THEN,), lambda n: {n: 1},
    lambda n: sorted([THEN, n]), lambda n: datetime.combine(n.date(), n.time()), lambda n: "%s" % n,  # noqa: UP031
]  # fmt: skip


@pytest.mark.parametrize("read", READS)
def test_whoever_reads_the_moment_is_noted(read: Callable[[Any], Any]) -> None:
    moment = Moment(THEN, may_move=True)
    now = moment.read()
    moved = timedelta(hours=1) + (now - timedelta(days=1)) + timedelta(hours=2)
    assert isinstance(moved, datetime) and not isinstance(moved, str) and not moment.asked
    assert at(moved, timedelta(seconds=1)) == THEN - timedelta(days=1) + timedelta(hours=3, seconds=1)
    assert at([now, 1], timedelta(1)) == [THEN + timedelta(1), 1]
    assert not moment.asked
    read(moved)
    assert moment.asked


def test_a_kept_text_answers_for_its_own_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    con, compiled = duckdb.connect(), []
    compile_ = running.compile_script
    monkeypatch.setattr(running, "compile_script", lambda *a, **k: (compiled.append(1), compile_(*a, **k))[1])
    text = f"print a = now(), b = ago(1d), c = now() - 90m // {json.dumps(str(THEN))}"
    for day in range(4):
        now = THEN + day * timedelta(days=1)
        rows = running.run(con, text, now=now).rows[0]
        wanted = [now, now - timedelta(days=1), now - timedelta(minutes=90)]
        assert [datetime.fromisoformat(one.rstrip("Z")) for one in rows] == wanted
    assert len(compiled) == 1
    with pytest.raises(KqlError):
        running.run(con, text, now=datetime(1, 1, 1, 5))
    assert len(compiled) == 2, "ago(1d) is no date then"
