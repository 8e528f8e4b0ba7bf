"""Sources that are lost, late, sent twice or by another clock: a verdict may become unknown or less sure, and never
blames another infrastructure than before or than the truth.

In each capture one source is lost, and something else is changed: which, by its turn.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from collector.ingest import Ingest
from correlator.engine import correlate, result
from correlator.live.ticker import INPUTS
from store import open_store
from tests.correlator.engine.test_liars import ALL, CAPTURES, unpacked
from tests.correlator.liars import said
from tests.line_parser import line_parser
from tests.measured import Measured

Rows = dict[str, pl.DataFrame]
#: With less confidence nobody is blamed.
BLAMES = 0.5
#: Seconds by which the clock of one host is wrong.
SKEWS = (-300.0, -37.0, 41.0, 600.0)
#: That a node was lost, and nothing tells why: the effect without a cause.
UNEXPLAINED = "node.unresponsive"
#: One capture in this many is altered. It has no divisor in common with the numbers of alterations: all have their turn.
SHARE = 5


def _without_lines(rows: Rows, lost: pl.Expr) -> Rows:
    return rows | {"logs": rows["logs"].filter(~lost.fill_null(False))}


def _of(*sources: str) -> pl.Expr:
    return pl.col("source").cast(pl.String).is_in(sources)


def _without(*tables: str) -> Callable[[Rows], Rows]:
    return lambda rows: {name: rows[name].clear() if name in tables else rows[name] for name in rows}


#: Kinds of sources, each lost as a whole.
LOST: dict[str, Callable[[Rows], Rows]] = {
    "slurmctld's log": lambda rows: _without_lines(rows, _of("slurmctld")),
    "slurmd's logs": lambda rows: _without_lines(rows, _of("slurmd", "slurmstepd")),
    "kernel lines": lambda rows: _without_lines(rows, _of("kernel")),
    "syslog of nodes": lambda rows: _without_lines(rows, _of("kernel", "syslog", "switch")),
    "job output": lambda rows: _without_lines(rows, _of("job_stdout", "job_stderr", "job_output")),
    "log host": lambda rows: _without_lines(rows, pl.col("file").cast(pl.String).str.contains("central.log")),
    "accounting": _without("jobs", "steps"),
    "configuration": _without("settings", "links", "topology"),
    "node states": _without("node_states", "boots"),
}


def _late(rows: Rows) -> Rows:
    """Every second line is received an hour later."""
    logs = rows["logs"].with_row_index("n")
    late = pl.when(pl.col("n") % 2 == 0).then(pl.col("received_time") + timedelta(hours=1)).otherwise("received_time")
    return rows | {"logs": logs.with_columns(late.alias("received_time")).drop("n")}


def _twice(rows: Rows) -> Rows:
    """Each line also came through another file."""
    logs = rows["logs"]
    again = logs.with_columns((pl.lit("again/") + pl.col("file").cast(pl.String)).alias("file"))
    return rows | {"logs": pl.concat([logs.with_columns(pl.col("file").cast(pl.String)), again])}


#: Slurm's answers, whose times are by slurmctld's clock, and their columns with a time.
BY_SLURMCTLD = {
    "jobs": ("submit", "start", "end", "observed_at"),
    "steps": ("submit", "start", "end"),
    "node_states": ("time", "until"),
}


def _skewed(rows: Rows, seconds: float, host: str) -> Rows:
    """All timestamps of a host, except those of jobs' output, are ``seconds`` ahead, and the times of accounting if it runs
    slurmctld."""
    logs, by = rows["logs"], timedelta(seconds=seconds)
    of_host = (pl.col("host").cast(pl.String) == host).fill_null(False)
    moved = (
        pl.when(of_host & ~_of("job_stdout", "job_stderr", "job_output")).then(pl.col("time") + by).otherwise("time")
    )
    found = rows | {"logs": logs.with_columns(moved.alias("time"))}
    if logs.filter(of_host & _of("slurmctld")).height:
        for table, columns in BY_SLURMCTLD.items():
            found[table] = rows[table].with_columns(pl.col(name) + by for name in columns)
    return found


def altered(rows: Rows, turn: int) -> Iterator[tuple[str, Rows]]:
    """Two of the alterations, by ``turn``: a lost source, and another one."""
    names = list(LOST)
    name = names[turn % len(names)]
    yield f"without {name}", LOST[name](rows)
    hosts = sorted({str(h) for h in rows["logs"]["host"].to_list() if h is not None})
    host = hosts[turn % len(hosts)] if hosts else ""
    others: list[tuple[str, Callable[[], Rows]]] = [
        ("late", lambda: _late(rows)),
        ("twice", lambda: _twice(rows)),
        *((f"the clock of {host} off by {s:g} s", partial(_skewed, rows, s, host)) for s in SKEWS),
    ]
    what, make = others[turn % len(others)]
    yield what, make()


def rows_of(place: Path) -> Rows:
    with open_store(None) as store, unpacked(place) as tree:
        Ingest(store, parser=line_parser()).run([tree])
        return {t: store.frame(f"SELECT * FROM raw.{'log_view' if t == 'logs' else t}") for t in INPUTS}


def concluded(rows: Rows) -> dict[str, Any]:
    with open_store(None) as store:
        store.add({name: table for name, table in rows.items() if table.height})
        correlate(store)
        return result(store)


def innocent(place: Path) -> dict[str, set[str]]:
    """Job -> hosts that its truth says are not to blame, in captures whose truth says so."""
    truth = json.loads((place / "truth.json").read_text()) if (place / "truth.json").exists() else {"jobs": []}
    return {str(j["id"]): set(j["not_to_blame"]) for j in truth["jobs"] if "not_to_blame" in j}


def wrong(before: Mapping[str, Any], after: Mapping[str, Any], spared: Mapping[str, set[str]]) -> list[str]:
    """Verdicts that blame another infrastructure than before.

    If the truth names the hosts that are not to blame, a host that is not among them is right. That the node of before
    was lost, and nothing tells why, is less than before, unless it is told more surely than by half.
    """
    known, found = ({key: said(v) for key, v in one["verdicts"].items()} for one in (before, after))
    worse = []
    for key, now in found.items():
        category, event, host, _, confidence = now
        if not category.startswith("infra.") or confidence < BLAMES:
            continue
        was = known.get(key)
        same = was is not None and was[0] == category and (host is None or host == was[2])
        true = host is not None and key.split("#")[0] in spared and host not in spared[key.split("#")[0]]
        unexplained = was is not None and host == was[2] and event == UNEXPLAINED and confidence <= BLAMES
        if not same and not true and not unexplained:
            worse.append(f"{key}: {was} -> {now}")
    return worse


def compare(place: Path, changes: Callable[[Rows], Iterable[tuple[str, Rows]]]) -> tuple[int, int, list[str]]:
    """Verdicts compared, those that are less sure or unknown now, and wrong blames."""
    rows = rows_of(place)
    before, spared = concluded(rows), innocent(place)
    compared, less, worse = 0, 0, []
    for what, changed in changes(rows):
        after = concluded(changed)
        compared += len(after["verdicts"])
        pairs = ((before["verdicts"].get(key), v) for key, v in after["verdicts"].items())
        less += sum(was is not None and said(was) != said(now) for was, now in pairs)
        worse += [f"{place.name}, {what}: {one}" for one in wrong(before, after, spared)]
    return compared, less, worse


def _by_clock(name: str, seconds: float, host: str) -> tuple[str, str, Callable[[Rows], Rows]]:
    return name, f"the clock of {host} off by {seconds:g} s", lambda rows: _skewed(rows, seconds, host)


#: What once blamed another, or blamed for a run that there never was.
FOUND = [
    # A node's and slurmctld's clocks differ: accounting shows which of them is wrong.
    _by_clock("endings/gpu_lost_by_neighbour_only", 41.0, "ctl"),
    _by_clock("endings/partition_removed", 41.0, "ctl"),
    # Nothing measures the clock of slurmctld's log.
    _by_clock("prolog_fails", -37.0, "ctl"),
    # Only timestamps without a zone show the clock.
    _by_clock("further/device_gone_short_timeout.tar.xz", 600.0, "gpu04"),
    # Only a switch's clock, which nothing is compared with, puts a link's loss before the end of a silent run.
    _by_clock("mgmt_flap_requeue", -37.0, "leaf01"),
    # All nodes' links show that it is the switch's clock, and that of one node where the others agree with the switch.
    _by_clock("switch_down", -300.0, "leaf01"),
    _by_clock("switch_down", -300.0, "gpu02"),
    # Arrivals show that it is slurmctld's clock, and accounting is by the same one.
    _by_clock("further/mgmt_flap_long_whole_names.tar.xz", 41.0, "ctl"),
    # Nothing is compared with the node's clock: what happened there half a minute too early may be the cause.
    _by_clock("further/slurmd_killed_then_flap.tar.xz", -37.0, "gpu02"),
    # slurmd tells that slurmctld no longer waited, and not why.
    ("endings/slurmd_deaf_at_launch", "without slurmctld's log", LOST["slurmctld's log"]),
    # Accounting has its times by slurmctld's clock, also of jobs that are older than the log.
    _by_clock("munge_dies", 41.0, "ctl"),
    # The machine's clock is off; a link of which it logged nothing went when it did.
    _by_clock("further/batch_host_power_lost.tar.xz", -300.0, "gpu01"),
    # A switch would be the cause by another clock.
    _by_clock("switch_down", -37.0, "ctl"),
    # The link was back when the node was given up, which is too late by the timeout that was lost.
    ("further/flap_at_the_edge.tar.xz", "without configuration", LOST["configuration"]),
    # Accounting showed no GPU of the job, and slurm.conf that it counts them.
    ("endings/gpu_lost_by_neighbour_only", "without accounting", LOST["accounting"]),
    ("endings/gpu_lost_by_neighbour_only", "without configuration", LOST["configuration"]),
    # slurm.conf showed that the node has no such GPU as the program asked for.
    ("second/gpu_lost_beside_wrong_number.tar.xz", "without configuration", LOST["configuration"]),
    # Only the output of one of two jobs with a GPU each named another GPU than the one that failed.
    ("second/gpu_lost_beside_wrong_number.tar.xz", "without job output", LOST["job output"]),
    # Only slurmctld tells that the partition, or the node, was taken out of slurm.conf.
    ("endings/partition_removed", "without slurmctld's log", LOST["slurmctld's log"]),
    ("endings/node_removed_from_config", "without slurmctld's log", LOST["slurmctld's log"]),
    # Only slurmds name the parts of a heterogeneous job.
    ("entangled/het_link_lost.tar.xz", "without slurmctld's log", LOST["slurmctld's log"]),
    # Without both, NODE_FAIL is all that is known of a job on two nodes.
    (
        "entangled/stepd_killed.tar.xz",
        "without slurmctld's log and job output",
        lambda rows: LOST["slurmctld's log"](LOST["job output"](rows)),
    ),
]


@pytest.mark.parametrize(
    ("name", "what", "change"),
    [pytest.param(*one, marks=[pytest.mark.long] if place else [], id=one[0]) for place, one in enumerate(FOUND)],
)
def test_what_once_blamed_another(name: str, what: str, change: Callable[[Rows], Rows]) -> None:
    compared, _, worse = compare(CAPTURES / name, lambda rows: [(what, change(rows))])
    assert compared and not worse, "\n".join(worse)


@pytest.mark.long
def test_no_altered_source_blames_another(measured: Measured) -> None:
    places = [place for kind, some in ALL.items() if kind not in ("scenarios", "captures beside") for place in some]
    compared, less, begun = 0, 0, time.process_time()
    worse: list[str] = []
    for turn, place in list(enumerate(places))[::SHARE]:
        some, fewer, more = compare(place, partial(altered, turn=turn))
        compared, less, worse = compared + some, less + fewer, worse + more
    used = time.process_time() - begun
    measured(f"{len(places[::SHARE])} trees, two alterations each, {compared} verdicts compared, {less} differ, wrong blames: {len(worse)}; {used:.0f} s of CPU")  # fmt: skip
    assert compared > 50 and not worse, "\n".join(worse)
