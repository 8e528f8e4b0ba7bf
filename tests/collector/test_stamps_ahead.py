"""A timestamp of the year 2099, in every way in.

It tops no list, moves no range, gives no other line its year, and is reported.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from receiver_requests import ask, frames

from collector import decoding
from collector.decoding import Job, summed
from collector.ingest import Ingest
from collector.segment_file import Position
from collector.spool import Spool
from correlator.engine import correlate
from correlator.repairs.repairs import repairs
from faultline.demo import CAPTURE
from store import open_store
from store.duckdb.store import DuckStore
from tests.line_parser import line_parser
from web.reading import Reader

PARSER = line_parser()
LATER = "2099-01-01T00:00:00"
NOW = datetime.now(UTC).replace(tzinfo=None)
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."


def usual(minutes: int = 0) -> str:
    return f"{NOW - timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%S}"


@pytest.fixture
def store() -> Iterator[DuckStore]:
    with open_store(None) as opened:
        yield opened


def loaded(store: DuckStore, folder: Path, **files: str) -> Ingest:
    for name, text in files.items():
        (folder / "n1").mkdir(exist_ok=True)
        (folder / "n1" / name).write_text(text)
    work = Ingest(store, parser=PARSER)
    work.run([folder])
    return work


def newest(store: DuckStore) -> dict[str, Any]:
    found = {}
    for table, column in store.cursor().execute(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema IN ('raw', 'model') AND data_type = 'TIMESTAMP'"
        " AND column_name NOT IN ('sender_time', 'end', 'until') AND table_name <> 'archive'"
    ).fetchall():  # fmt: skip
        schema = (
            "model" if table in ("events", "runs", "incidents", "node_states") and column != "observed_at" else "raw"
        )
        try:
            found[f"{schema}.{table}.{column}"] = store.rows(f'SELECT max("{column}") AS m FROM {schema}.{table}')[0][
                "m"
            ]
        except Exception:  # of the other schema
            continue
    return {name: moment for name, moment in found.items() if moment is not None}


def test_a_file_with_one_such_line(store: DuckStore, tmp_path: Path) -> None:
    bsd = f"{NOW - timedelta(minutes=3):%b %e %H:%M:%S}"
    work = loaded(
        store, tmp_path,
        syslog=f"{usual(5)}Z n1 kernel: {XID}\n{LATER}Z n1 kernel: {XID}\n{usual(4)}Z n1 kernel: igb 0000:01:00.0 eth0: igb: eth0 NIC Link is Down\n",
        messages=f"{bsd} n1 sshd[4]: no year here\n",
    )  # fmt: skip
    correlate(store)
    rows = {r["line"]: r for r in store.rows("SELECT * FROM raw.logs WHERE file LIKE '%/syslog'")}
    assert (rows[2]["time"], rows[2]["sender_time"]) == (None, datetime(2099, 1, 1))
    (yearless,) = store.rows("SELECT time FROM raw.logs WHERE file LIKE '%/messages'")
    assert yearless["time"].year == (NOW - timedelta(minutes=3)).year
    reported = newest(store)
    assert reported and not {name: at for name, at in reported.items() if at > NOW + timedelta(days=1)}
    assert store.info()["last"] <= NOW and (listed := repairs(store)).until is not None and listed.until <= NOW
    (warned,) = [f for f in work.report.files if str(f.path).endswith("syslog")]
    assert any(text.startswith("1 lines are stamped after they were read") for text in warned.warnings)
    (row,) = [r for r in Reader(store).sources() if r["file"].endswith("/syslog")]
    assert row["ahead"] == 1 and row["last"] <= NOW


def test_a_file_of_nothing_else_and_with_such_an_age(store: DuckStore, tmp_path: Path) -> None:
    (tmp_path / "n1").mkdir()
    file = tmp_path / "n1" / "syslog"
    file.write_text(f"{LATER}Z n1 kernel: {XID}\nDec 31 23:59:59 n1 kernel: x\n")
    os.utime(file, (4_070_908_800, 4_070_908_800))
    loaded(store, tmp_path)
    assert not {name: at for name, at in newest(store).items() if at > NOW + timedelta(days=1)}


def test_documents(store: DuckStore, tmp_path: Path) -> None:
    """Samples and node states get the time of the tree."""
    loaded(store, tmp_path, syslog=f"{usual(5)}Z n1 kernel: x\n")
    (tmp_path / "metrics" / "n1").mkdir(parents=True)
    (tmp_path / "metrics" / "n1" / "4070908800.prom").write_text("# TYPE node_load1 gauge\nnode_load1 0.5\n")
    loaded(store, tmp_path)
    assert store.rows("SELECT count(*) AS n FROM raw.metrics")[0]["n"] == 1
    assert not {name: at for name, at in newest(store).items() if at > NOW + timedelta(days=1)}


def test_a_tree_whose_machine_is_only_ahead_is_kept(store: DuckStore, tmp_path: Path) -> None:
    """Everything is some months ahead: the clock of the loading machine is behind."""
    ahead = NOW + timedelta(days=90)
    loaded(store, tmp_path, syslog=f"{ahead:%Y-%m-%dT%H:%M:%S}Z n1 kernel: x\n")
    (row,) = store.rows("SELECT time FROM raw.logs")
    assert row["time"] == ahead.replace(microsecond=0)


def test_nothing_of_a_real_capture_is_held(store: DuckStore) -> None:
    work = Ingest(store, parser=PARSER)
    work.run([CAPTURE])
    assert store.rows("SELECT count(*) AS n FROM raw.logs WHERE list_contains(tags, 'future')")[0]["n"] == 0
    assert not [w for f in work.report.files for w in f.warnings if "ahead" in w or "after now" in w]


ZONED, UNZONED = "{:%Y-%m-%dT%H:%M:%S}Z n1 kernel: " + XID, "{:%b %e %H:%M:%S} n1 kernel: " + XID
#: Lines of a host, with the hours by which they are ahead; those that are held back.
FEW_HOURS = {
    "a zone is named": ([(ZONED, 3.0), (ZONED, -0.1)], [3.0]),
    "a zone is named, and the clock is some minutes ahead": ([(ZONED, 0.1)], []),
    "no zone is named, and others beside it are right": ([(UNZONED, 3.0), (UNZONED, -0.05)], [3.0]),
    "no zone is named, and all are ahead": ([(UNZONED, 9.0), (UNZONED, 8.95)], []),
    "no zone is that far ahead": ([(UNZONED, 15.0)], [15.0]),
}


@pytest.mark.parametrize(("stamped", "held"), FEW_HOURS.values(), ids=FEW_HOURS)
@pytest.mark.parametrize("way", ["file", "network"])
def test_a_stamp_of_a_few_hours_ahead(
    way: str,
    stamped: list[tuple[str, float]],
    held: list[float],
    store: DuckStore,
    tmp_path: Path,
    spool: Spool,
    intake: Any,
) -> None:
    """A line cannot be written after it arrived.

    A timestamp without a zone may be another zone's, unless its neighbours are right.
    """
    now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    lines = [form.format(now + timedelta(hours=ahead)) for form, ahead in stamped]
    if way == "file":
        loaded(store, tmp_path, syslog="".join(f"{line}\n" for line in lines))
        rows = store.frame("SELECT * FROM raw.logs")
    else:
        body = "".join(json.dumps({"host": "n1", "path": "/var/log/syslog", "message": line}) + "\n" for line in lines)
        assert ask(intake, "POST", "/api/v1/ingest", body.encode(), content_type="application/x-ndjson").status == 200
        jobs = [
            Job(r.path, r.payload_offset, r.payload_bytes, r.payload_crc, r.meta)
            for r in spool.read(Position(0, 0), 1 << 40)
        ]
        rows = frames(decoding.work(jobs, PARSER))["logs"]
    found = [row for row in rows.iter_rows(named=True) if "future" in (row["tags"] or [])]
    assert [round((row["sender_time"] - now).total_seconds() / 3600, 2) for row in found] == held
    assert all(row["time"] is None if way == "file" else row["time"] < now + timedelta(hours=1) for row in found)


AHEAD_RECORDS = [
    {"host": "n1", "message": "x", "time": f"{LATER}Z"},
    {"host": "n1", "message": f"{LATER}Z n1 kernel: x", "time": f"{LATER}Z"},
    {"host": "n1", "message": "x", "read": f"{LATER}Z", "path": "/var/log/x"},
    {"host": "n1", "path": "/var/log/syslog", "message": f"{LATER}Z n1 kernel: {XID}", "read": f"{LATER}Z"},
    {"host": "n1", "document": "prometheus", "raw": "node_load1 0.5", "read": f"{LATER}Z"},
]


@pytest.mark.parametrize("record", AHEAD_RECORDS)
def test_what_comes_over_a_network_came_when_it_came(record: dict[str, str], spool: Spool, intake: Any) -> None:
    """The sender's own time is a timestamp like the line's."""
    body = json.dumps(record).encode()
    assert ask(intake, "POST", "/api/v1/ingest", body, content_type="application/x-ndjson").status == 200
    jobs = [
        Job(r.path, r.payload_offset, r.payload_bytes, r.payload_crc, r.meta)
        for r in spool.read(Position(0, 0), 1 << 40)
    ]
    outcome = decoding.work(jobs, PARSER)
    stats = summed([packed.frame() for packed in outcome.stats]) if outcome.stats else None
    found = frames(outcome)
    for table, rows in found.items():
        for column in ("time", "received_time", "observed_at"):
            if column in rows.columns:
                moments = rows[column].drop_nulls()
                assert (moments <= NOW + timedelta(days=1)).all(), (table, column, moments.to_list())
    if stats is not None and "read" not in record:
        assert stats["ahead"].to_list() == [1] and "future" in found["logs"]["tags"][0]
        assert found["logs"]["sender_time"][0] == datetime(2099, 1, 1)
