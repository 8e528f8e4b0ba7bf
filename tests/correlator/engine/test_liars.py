"""The liar's test: whatever a user writes, nobody else's verdict changes, and no node or link is blamed that was not.

In every capture, scenario and made situation a user with one job on one node (``liars.py``) writes examples of all
patterns of the catalogue through every channel that a user has, alone on her node or beside another user's job.
"""

from __future__ import annotations

import importlib
import re
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest

from benchmarks.captures import unpacked
from benchmarks.simulators import scenario
from correlator.edges.load import entries, rules
from correlator.engine import Conclusions, correlate
from correlator.selftest import situations as made
from correlator.selftest.run import gather
from parsers.record import Origin, frame
from store import open_store
from store.line_frames import logs_for_storage
from tests.correlator import field
from tests.correlator.liars import (
    HER_NAME,
    MALLORYS,
    concluded,
    concluded_twice,
    harm,
    lies,
    said,
    staged,
    texts,
    ways,
)
from tests.correlator.verdicts.test_endings_table import MADE, situation_of
from tests.line_parser import line_parser
from tests.measured import Measured

ROOT = Path(__file__).resolve().parents[3]
CAPTURES = ROOT / "tests" / "captures"
SCENARIOS = ROOT.parent / "shared" / "scenarios"
#: By kind: folders and archives with a tree each.
ALL: dict[str, list[Path]] = {
    "captures": sorted(p.parent for p in CAPTURES.glob("*/truth.json")),
    "archived captures": sorted(p for kind in ("entangled", "further") for p in (CAPTURES / kind).glob("*.tar.xz")),
    "endings": sorted(p.parent for p in (CAPTURES / "endings").glob("*/truth.json")),
    "captures beside": sorted(p.parent for p in (ROOT.parent / "shared" / "captures").glob("*/truth.json")),
    "scenarios": sorted(SCENARIOS.glob("*/logs.tar.xz")),
    "second party": sorted((CAPTURES / "second").glob("*.tar.xz")),
    "third party": sorted((CAPTURES / "third").glob("*.tar.xz")),
    "fourth party": sorted((CAPTURES / "fourth").glob("*.tar.xz")),
    "fifth party": sorted((CAPTURES / "fifth").glob("*.tar.xz")),
    "sixth party": sorted((CAPTURES / "sixth").glob("*.tar.xz")),
}
#: Of this kind, and of one tree in eight of each other kind, the lies are read together with what is true. Of the others
#: they are read after it, into the same store: the truth is read once.
AT_ONCE = "captures"
#: Each text goes one way in this many. The turn is another one for each tree, so together they take every way.
SHARE = 384


class Count:
    """What a test compared."""

    def __init__(self) -> None:
        self.trees, self.lines, self.verdicts, self.skipped = 0, 0, 0, 0
        self.harmed: list[str] = []
        self.begun = time.process_time()

    def __str__(self) -> str:
        return (
            f"{self.trees} trees ({self.skipped} without a run on a node with a syslog), {self.lines} lines injected, {self.verdicts} verdicts "
            f"compared, changed: {len(self.harmed)}; {time.process_time() - self.begun:.0f} s of CPU"
        )


def tell(place: Path, turn: int, count: Count, *, at_once: bool) -> None:
    """Judges one tree without and with the lies, which are read together with the tree (``at_once``) or after it."""
    with TemporaryDirectory() as folder, unpacked(place) as tree:
        stage = staged(tree, Path(folder))
        if stage is None:
            count.skipped += 1
            return
        told = lies(stage, ways(stage), SHARE, turn)
        if at_once:
            (peace, quiet), (found, stored) = concluded(stage, {}), concluded(stage, told)
        else:
            (peace, quiet), (found, stored) = concluded_twice(stage, told)
        assert stored > quiet or not any(told.values()), f"{place}: no lie was read"
        count.trees += 1
        count.lines += stored - quiet
        count.verdicts += len(peace["verdicts"])
        count.harmed += [f"{place.name.removesuffix('.tar.xz')}: {what}" for what in harm(peace, found)]


@pytest.mark.parametrize("name", [pytest.param("job_faults", marks=pytest.mark.long), "endings/exit_codes_small"])
def test_no_lie_changes_anothers_verdict(name: str) -> None:
    count = Count()
    tell(CAPTURES / name, 3, count, at_once=True)
    print(count)
    assert count.trees == 1 and count.lines > 300 and count.verdicts >= 2
    assert not count.harmed, "\n".join(count.harmed)


@pytest.mark.long
@pytest.mark.parametrize("kind", ALL)
def test_no_lie_changes_anothers_verdict_anywhere(kind: str, measured: Measured) -> None:
    if not ALL[kind]:
        pytest.skip(f"{kind}: there are none here")
    count = Count()
    for turn, place in enumerate(ALL[kind]):
        tell(place, turn, count, at_once=kind == AT_ONCE or turn % 8 == 4)
    measured(f"{kind}: {count}")
    assert not count.harmed, "\n".join(count.harmed)


@pytest.mark.long
def test_no_lie_changes_anothers_verdict_in_a_simulated_cluster(tmp_path: Path, measured: Measured) -> None:
    scenario.make(7, tmp_path)
    count = Count()
    tell(tmp_path / "logs" if (tmp_path / "logs").is_dir() else tmp_path, 3, count, at_once=True)
    measured(str(count))
    assert count.trees == 1 and not count.harmed, "\n".join(count.harmed)


def test_the_same_words_of_the_kernels_own_ring_do_change_it(tmp_path: Path) -> None:
    """The comparison can fail: root's channel."""
    stage = staged(CAPTURES / "endings" / "exit_codes_small", tmp_path)
    assert stage is not None
    peace, _ = concluded(stage, {})
    ring = f"hosts/{stage.near}/dmesg.log"
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."
    lines = [f"[{datetime.fromisoformat(at):%a %b %e %H:%M:%S %Y}] {xid}" for at in stage.moments]
    found, _ = concluded(stage, {ring: lines})
    assert harm(peace, found)


# ------------------------------------------------------------------------------------------------ situations of edges


def _of_mallory(some: Sequence[Any]) -> pl.DataFrame:
    """A run of mallory's on the first node of each situation, during all of it."""
    rows = [
        {"cluster": made.cluster_of(n), "job_id": MALLORYS, "submit": made._moment(-1000), "start": made._moment(-1000),
         "end": made._moment(90_000), "state": "FAILED", "node_list": _near(case), "nodes": [_near(case)], "exit_code": 1, "user": HER_NAME,
         "source": "sacct", "file": "test", "line": 999}
        for n, case in enumerate(some)
    ]  # fmt: skip
    return frame("jobs", rows)


def _near(case: Any) -> str:
    """A node of a situation; some jobs never had one."""
    return str(next((nodes[0] for job in case.jobs if (nodes := made.expand(job.nodes))), "gpu01"))


def _quiet(some: Sequence[Any]) -> pl.DataFrame:
    """A line in the syslog of mallory's node, so that hers are not the first to show that it is collected."""
    stamp = made._moment(-600).isoformat(timespec="microseconds")
    lines = [f"{stamp}+00:00 {_near(case)} systemd[1]: Started Session 7 of user root.".encode() for case in some]
    rows = line_parser().parse(lines, Origin(path="quiet", timezone_known=True, reference=made._moment(0)))
    clusters = [made.cluster_of(n) for n in range(len(some))]
    return rows.with_columns(pl.Series("cluster", clusters, pl.String), pl.Series("line", range(1, len(lines) + 1)))


def _told_there(some: Sequence[Any]) -> pl.DataFrame:
    """In each situation: output of mallory's job that looks like logs, and lines of ``logger`` in her node's syslog."""
    parts = []
    tags = (HER_NAME, "kernel[77]", "slurmctld[77]", "slurmdbd[77]")
    for way in ("job_stdout", "job_stderr", "syslog"):
        lines, clusters, at = [], [], []
        for n, case in enumerate(some):
            # A node that is lost writes nothing at the end.
            near = _near(case)
            ends = [job.start + 3 if job.state == "NODE_FAIL" else job.end for job in case.jobs]
            for place, (text, _) in enumerate(texts()[n % 16 :: 16]):
                moment = made._moment(ends[place % len(ends)] - 2)
                stamp = moment.isoformat(timespec="microseconds")
                told = (f"{stamp}+00:00 {near} kernel: {text}", f"[ 9123.456789] {text}", text)[place % 3]
                if way == "syslog":
                    told = f"{stamp}+00:00 {near} {tags[place % len(tags)]}: {text}"
                lines.append(told.encode())
                clusters.append(made.cluster_of(n))
                at.append(moment)
        origin = Origin(path="lies", timezone_known=True, reference=made._moment(0))
        if way != "syslog":
            origin = origin.but(source=way, job_id=MALLORYS)
        rows = line_parser().parse(lines, origin)
        if way != "syslog":
            rows = rows.with_columns(pl.Series("time", at, pl.Datetime("us")), time_quality=pl.lit("line"))
        parts.append(rows.with_columns(pl.Series("cluster", clusters, pl.String), pl.Series("line", range(1, len(lines) + 1))))  # fmt: skip
    return pl.concat(parts)


def _by_cluster(found: Sequence[Conclusions]) -> dict[tuple[str, str], Any]:
    """What others read: category, root cause, confidence, and the words."""
    return {
        (str(c.cluster), key): (said(verdict), verdict["headline"], verdict["summary"], verdict["advice"])
        for c in found for key, verdict in c.verdicts.items() if key != str(MALLORYS)
    }  # fmt: skip


def _is_less_surely_dead(was: Any, now: Any) -> bool:
    """Is only the confidence lower that a node had died? Any line that a user writes there is a true sign of its life."""
    return now is not None and was[0][1] == "node.unresponsive" and was[1:] == now[1:] and was[0][:4] == now[0][:4] and was[0][4] > now[0][4]  # fmt: skip


def _unharmed(tables: dict[str, pl.DataFrame], some: Sequence[Any], measured: Measured) -> None:
    """Concludes about situations without and with mallory's lines; each is a cluster of its own in ``tables``."""
    jobs = pl.concat([tables["jobs"], _of_mallory(some)])
    tables = {**tables, "jobs": jobs, "logs": pl.concat([tables["logs"], _quiet(some)], how="diagonal_relaxed")}
    lied = _told_there(some)
    found = []
    for logs in (None, lied):
        with open_store(None) as store:
            store.append(tables)
            if logs is not None:
                store.add({"logs": logs_for_storage(logs)})
            found.append(_by_cluster(correlate(store)))
    peace, after = found
    changed = [
        f"{key}: {was} -> {after.get(key)}" for key, was in peace.items()
        if after.get(key) != was and not _is_less_surely_dead(was, after.get(key))
    ]  # fmt: skip
    new = [f"{key}: {after[key]}" for key in after.keys() - peace.keys()]
    measured(
        f"{len(some)} situations, {lied.height} lines injected, {len(peace)} verdicts compared, changed: {len(changed + new)}"
    )
    assert len(peace) > 30 and not changed and not new, "\n".join(changed + new)


@pytest.mark.long
def test_no_lie_changes_a_situation_of_an_edge(measured: Measured) -> None:
    tests, _ = gather(entries(()), {edge.id: edge for edge in rules(())[0].edges})
    some = list({case.situation: case for case in tests if case.lines and case.jobs}.values())
    _unharmed(made.tables_of(some, line_parser()), some, measured)


@pytest.mark.long
def test_no_lie_changes_a_made_situation(measured: Measured) -> None:
    """Those of the table of endings, and those that other tests make of log lines."""
    reported = [*map(situation_of, MADE), *made_elsewhere()]
    some = [field._case(one, number) for number, one in enumerate(reported)]
    tables = field.tables_of(reported, some)
    assert len(reported) > 200
    _unharmed(tables, some, measured)


def made_elsewhere() -> Iterator[field.Situation]:
    """The situations of all modules below tests/correlator."""
    for path in sorted((ROOT / "tests" / "correlator").rglob("*.py")):
        if re.search(r"(?m)^SITUATIONS = \[", path.read_text(encoding="utf-8")):
            module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            yield from (one for one in module.SITUATIONS if isinstance(one, field.Situation))
