"""Questions about what the lines of most clusters never show are left out of ticks until the first line may show it."""

from __future__ import annotations

import polars as pl
import pytest

from correlator.engine import correlate
from correlator.facts.time_limits import LIMIT_SHORTENED
from correlator.live.inbox import MayShow, NewRows
from correlator.live.ticker import Ticker
from store import open_store
from store.line_frames import coded, logs_for_storage
from store.questions.job_output import may_show_pace
from store.questions.kernel_lines import may_show_clock
from store.questions.time_limits import may_change_limit
from tests.correlator.live.test_streaming import benchmark, stored, with_settings

HOUR = 3600.0
LIMIT = "sched: _update_job: setting time_limit to 31 for JobId=2"


def test_the_first_changed_limit_and_the_first_pace_are_read_by_the_tick_that_gets_them() -> None:
    day = benchmark().Day(1)
    day.job_id = 100
    day.fill(0, 4 * HOUR, 60, 400)
    node = benchmark().NODES[3]
    day._lifecycle(1, [node], 3 * HOUR, 3 * HOUR + 900, "TIMEOUT")
    with open_store(None) as store:
        with_settings(store)
        day.store(store)
        ticker = Ticker(store)
        ticker.tick()
        (known,) = ticker._known.values()
        assert known.memory.basis.any_new_limit is False
        assert not known.memory.basis.progress
        start, changed = 4 * HOUR, 4 * HOUR + 1_900
        day._lifecycle(2, [node], start, changed + 30, "TIMEOUT")
        for second in (10, 20, 30):
            day.say(start + second, node, "job_stdout", "other", f"step {second}, time per step: 0.25 s", job=2)
        day.say(changed, "ctl", "slurmctld", "other", LIMIT, job=2)
        day.say(changed, "ctl", "slurmctld", "other", "_slurm_rpc_update_job: complete JobId=2 uid=0 usec=229", job=2)
        day.store(store)
        assert not ticker.tick().full, "this test is about ticks that look at a part"
        (known,) = ticker._known.values()
        assert known.memory.basis.any_new_limit is True
        assert list(known.memory.basis.progress) == [(2, 0)]
        assert [f.run for f in known.result.facts if f.kind == LIMIT_SHORTENED.name] == ["2"]
        ticked = stored(store)
        correlate(store)
        assert ticked == stored(store)


def line(**values: object) -> pl.DataFrame:
    """A line as the store announces it."""
    row = {"source": None, "event": "other", "raw": "x", "message": None, "format": None, **values}
    kinds = dict.fromkeys(row, pl.String)
    return coded(logs_for_storage(pl.DataFrame([row], schema=kinds)))


@pytest.mark.parametrize(
    ("new", "shown"),
    [
        (line(source="slurmctld", raw=f"[2026-03-02T10:00:00.000] {LIMIT}", message=LIMIT), MayShow(False, True, False)),
        (line(source="slurmctld", raw="{}", message=LIMIT), MayShow(False, True, False)),
        (line(source="slurmctld", raw="_slurm_rpc_update_job: complete JobId=2"), MayShow(False, False, False)),
        (line(source="syslog", raw=LIMIT, message=LIMIT), MayShow(False, False, False)),
        (line(source="job_stdout"), MayShow(False, False, True)),
        (line(source="job_stderr", event=None), MayShow(False, False, True)),
        (line(source="job_stderr", event="job.oom"), MayShow(False, False, False)),
        (line(source="kernel", raw="[   12.000001] x"), MayShow(True, False, False)),
        (line(source="kernel", format="kmsg"), MayShow(True, False, False)),
        (line(source="kernel"), MayShow(False, False, False)),
        (line(), MayShow(False, False, False)),
        (line()[:0], MayShow(False, False, False)),
    ],
)  # fmt: skip
def test_what_a_new_line_may_show(new: pl.DataFrame, shown: MayShow) -> None:
    assert MayShow(*new.select(a=may_show_clock(), b=may_change_limit(), c=may_show_pace()).row(0)) == shown


def test_the_lines_of_several_transactions_may_show_what_any_of_them_may() -> None:
    rows = NewRows()
    rows.add(NewRows(may_show=MayShow(False, True, False)))
    rows.add(NewRows(may_show=MayShow(True, False, False)))
    assert rows.may_show == MayShow(True, True, False)
