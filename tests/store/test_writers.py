"""Who can have written a line: every way by which a line comes in, the value of ``Authority``, and what the correlator
believes of such a line."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
import sqlalchemy as sa

from collector.decoding import _rows
from collector.ingest import Ingest, Options
from collector.receivers import all_receivers
from collector.receivers.base import Decoded, Payload, micros
from correlator.engine import correlate
from correlator.gather import collected
from correlator.gather.collected import LOG_HOST, NAMED, Spans, asked, spans_in
from correlator.gather.events import prepared
from correlator.live.ticker import Ticker
from correlator.site.open_lines import owner_of
from correlator.site.senders import Senders
from parsers.host_names import short_key
from parsers.record import TABLES, frame
from parsers.speakers import CLAIMS
from parsers.writers import (
    AUTHORITIES,
    DAEMON,
    DEVICE,
    JOB,
    KERNEL,
    LOCAL,
    NETWORK,
    NO_USERS,
    ROOT,
    UNVERIFIED,
    in_words,
    surest,
)
from queries.kql import run
from store import disowned, open_store
from store.duckdb.store import DuckStore
from store.line_frames import coded, logs_for_storage
from store.questions import event_lines
from store.questions.authority import Speakers
from store.questions.writers import (
    _RULE,
    authority,
    authority_of_events,
    authority_of_writers,
    counted,
    writer_columns,
    writer_expressions,
)
from store.tables import LINES
from tests.line_parser import line_parser
from web.reading import Reader
from web.timerange import Range

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."
DOWN = "error: Nodes gx02 not responding, setting DOWN"
FAILED = "slurmd.service: Main process exited, code=exited, status=1/FAILURE"
PORT = "%ETH-5-IF_DOWN_LINK_FAILURE: Interface Ethernet1/7 is down (Link failure)"
AT, HEAD = "2026-02-28T10:20:05Z", "Feb 28 10:20:00"

Way = Callable[[DuckStore, Path], None]


def stored(store: DuckStore, receiver: str, body: str, **known: Any) -> None:
    """Stores what a receiver makes of a body."""
    into = Decoded()
    known = {"received": micros(AT), "peer": "10.9.9.9", **known}
    all_receivers()[receiver].decode(Payload(body.encode(), known), into)
    for group in into.groups.values():
        rows = pl.concat(_rows(group, line_parser())).drop("_transport")
        store.add({"logs": logs_for_storage(rows.with_columns(cluster=rows["cluster"].fill_null("c")))})


def file(path: str, *lines: str) -> Way:
    """A file of a tree that is loaded."""

    def put(store: DuckStore, folder: Path) -> None:
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        Ingest(store, Options(cluster="c"), parser=line_parser()).run([folder])

    return put


def agent(line: str, host: str = "gx01", **record: Any) -> Way:
    whole = json.dumps({"host": host, "cluster": "c", "lines": line, "read": AT, **record}) + "\n"
    return lambda store, folder: stored(store, "ingest", whole, form="records")


def network(line: str, address: str = "10.9.9.9") -> Way:
    parts = [[address, False, "udp", len(line.encode()) + 1, False, "UTC"]]
    return lambda store, folder: stored(store, "syslog", line + "\n", parts=parts)


def journal(**fields: str) -> str:
    return json.dumps({"_HOSTNAME": "gx01", "__REALTIME_TIMESTAMP": "1772274000000000", "PRIORITY": "3", **fields})


def upload(**fields: str) -> Way:
    entry = "".join(f"{name}={value}\n" for name, value in json.loads(journal(**fields)).items()) + "\n"
    return lambda store, folder: stored(store, "journal", entry)


def loki(line: str, **labels: str) -> Way:
    pushed = {"streams": [{"stream": {"host": "gx01", **labels}, "values": [["1772274000000000000", line]]}]}
    return lambda store, folder: stored(store, "loki", json.dumps(pushed), form="json")


def otlp(line: str, **attributes: str) -> Way:
    named = [
        {"key": name, "value": {"stringValue": value}} for name, value in {"host.name": "gx01", **attributes}.items()
    ]
    record = {"timeUnixNano": "1772274000000000000", "body": {"stringValue": line}}
    pushed = {"resourceLogs": [{"resource": {"attributes": named}, "scopeLogs": [{"logRecords": [record]}]}]}
    return lambda store, folder: stored(store, "otlp", json.dumps(pushed), form="json", signal="logs")


def elasticsearch(**document: Any) -> Way:
    body = (
        '{"index":{"_index":"logs"}}\n'
        + json.dumps({"@timestamp": "2026-02-28T10:20:00Z", "host": {"name": "gx01"}, **document})
        + "\n"
    )
    return lambda store, folder: stored(store, "elasticsearch", body, form="bulk", index="logs")


class Expected(NamedTuple):
    authority: str
    event: str
    way: Way


RING, KERNELS = "6,1234,5140900,-;" + XID, {"SYSLOG_IDENTIFIER": "kernel", "MESSAGE": XID}
OF_SLURMD = {"SYSLOG_IDENTIFIER": "slurmd", "MESSAGE": "error: Node configuration differs from hardware: CPUs=1:2(hw)"}
OF_SYSTEMD = {"SYSLOG_IDENTIFIER": "systemd", "_PID": "1", "MESSAGE": FAILED}
JOURNALD = {"stream": "journald", "source": "journald"}
PROGRAM = {"programname": "nvidia-smi", "message": XID, "host": "gx01", "timestamp": AT}

WAYS: dict[str, Expected] = {
    # The kernel's ring.
    "agent, kmsg": Expected(KERNEL, "gpu.xid", agent(RING, stream="kmsg", source="kernel", time=AT)),
    "file, dmesg": Expected(KERNEL, "gpu.xid", file("nodes/gx01/dmesg", f"[Sat Feb 28 10:20:00 2026] {XID}")),
    "agent, journald of the kernel": Expected(KERNEL, "gpu.xid", agent(journal(**KERNELS, _TRANSPORT="kernel"), **JOURNALD)),
    "upload, kernel transport": Expected(KERNEL, "gpu.xid", upload(**KERNELS, _TRANSPORT="kernel")),
    "agent, root wrote to kmsg": Expected(ROOT, "other", agent("30,1235,5140901,-;systemd[1]: Mounting.", stream="kmsg", source="kernel", time=AT)),
    "agent, told by NVML": Expected(ROOT, "gpu.xid", agent("NVRM: Xid (PCI:0000:3b:00): 79, told by NVML", stream="nvml", source="kernel", time=AT)),
    # The journal: whose process it was.
    "agent, journald of a unit": Expected(
        DAEMON, "sys.service_failed", agent(journal(**OF_SYSTEMD, _TRANSPORT="journal", _UID="0", _SYSTEMD_UNIT="init.scope"), **JOURNALD)),
    "upload, journald of a unit": Expected(DAEMON, "sys.service_failed", upload(**OF_SYSTEMD, _TRANSPORT="journal", _UID="0")),
    "agent, journald of slurmd": Expected(
        DAEMON, "slurm.config_error", agent(journal(**OF_SLURMD, _TRANSPORT="stdout", _UID="0", _SYSTEMD_UNIT="slurmd.service"), **JOURNALD)),
    "agent, a user as slurmd": Expected(
        LOCAL, "other", agent(journal(**OF_SLURMD, _TRANSPORT="syslog", _UID="1001", _SYSTEMD_UNIT="session-3.scope"), **JOURNALD)),
    "agent, a job's process in slurmd's unit": Expected(
        LOCAL, "other", agent(journal(**OF_SLURMD, _TRANSPORT="syslog", _UID="1001", _SYSTEMD_UNIT="slurmd.service"), **JOURNALD)),
    "agent, a user as the kernel": Expected(LOCAL, "other", agent(journal(**KERNELS, _TRANSPORT="syslog", _UID="1001"), **JOURNALD)),
    "upload, a user as the kernel": Expected(LOCAL, "other", upload(**KERNELS, _TRANSPORT="syslog", _UID="1001", SYSLOG_FACILITY="3")),
    # A daemon's own file.
    "file, slurmctld": Expected(DAEMON, "slurm.node_down", file("controller/slurmctld.log", f"[2026-02-28T10:20:00.100] {DOWN}")),
    "agent, slurmd": Expected(
        DAEMON, "slurm.config_error", agent(f"[2026-02-28T10:20:00.100] {OF_SLURMD['MESSAGE']}", path="/var/log/slurm/slurmd.log")),
    "agent, like slurmd in a person's file": Expected(
        LOCAL, "other", agent(f"[2026-02-28T10:20:00.100] {OF_SLURMD['MESSAGE']}", path="/scratch/x/logs/slurmd.log", owner="20003")),
    "agent, slurmd's file of root": Expected(
        DAEMON, "slurm.config_error", agent(f"[2026-02-28T10:20:00.100] {OF_SLURMD['MESSAGE']}", path="/var/log/slurm/slurmd.log", owner="0")),
    "agent, slurmctld's file of SlurmUser": Expected(
        DAEMON, "slurm.node_down", agent(f"[2026-02-28T10:20:00.100] {DOWN}", "ctl", path="/var/log/slurm/slurmctld.log", owner="5001")),
    "agent, journald's JSON in a person's file": Expected(
        LOCAL, "other", agent(journal(**KERNELS, _TRANSPORT="kernel"), path="/scratch/x/logs/app.log", owner="20003")),
    "agent, like a switch in a person's file": Expected(
        LOCAL, "switch.port_down", agent(f"<189>{HEAD} leaf01 : {PORT}", path="/scratch/x/switches/leaf01/syslog", owner="20003")),
    "agent, like the site's health checks in a person's file": Expected(
        LOCAL, "other", agent("GPU 0 has fallen off the bus", path="/scratch/x/logs/healthagent.log", owner="20003")),
    "agent, like the kernel with a header in a person's file": Expected(
        LOCAL, "other", agent(f"{HEAD} gx01 kernel: [100.000100] {XID}", path="/scratch/x/logs/app.log", owner="20003")),
    "agent, slurmd's file of Slurm's own account": Expected(
        DAEMON, "slurm.config_error", agent(f"[2026-02-28T10:20:00.100] {OF_SLURMD['MESSAGE']}", path="/var/log/slurm/slurmd.log", owner="1000")),
    "agent, like the ring in a person's file": Expected(
        LOCAL, "other", agent(f"[Sat Feb 28 10:20:00 2026] {XID}", path="/scratch/x/logs/dmesg", owner="20003")),
    "file, fabric manager": Expected(
        DAEMON, "other", file("nodes/gx01/fabricmanager.log", "[Feb 28 2026 10:20:00] [INFO] [tid 7] Connected to 8 nodes.")),
    # Files of a syslog daemon: program, facility and process id are the writer's.
    "syslog file, no facility": Expected(LOCAL, "gpu.xid", file("nodes/gx01/syslog", f"{HEAD} gx01 kernel: [100.000100] {XID}")),
    "syslog file, by facility": Expected(LOCAL, "gpu.xid", file("nodes/gx01/kern.log", f"{HEAD} gx01 kernel: [100.000100] {XID}")),
    "syslog file, facility kern": Expected(LOCAL, "gpu.xid", file("nodes/gx01/messages", f"<3>{HEAD} gx01 kernel: [100.000100] {XID}")),
    "syslog file, facility user": Expected(LOCAL, "other", file("nodes/gx01/messages", f"<11>{HEAD} gx01 kernel: [100.000100] {XID}")),
    "syslog file, facility daemon": Expected(LOCAL, "other", file("nodes/gx01/messages", f"<27>{HEAD} gx01 kernel: [100.000100] {XID}")),
    "syslog file, slurmd by facility daemon": Expected(
        LOCAL, "slurm.config_error", file("nodes/gx01/messages", f"<27>{HEAD} gx01 slurmd[7]: {OF_SLURMD['MESSAGE']}")),
    "syslog file, a system program": Expected(LOCAL, "sys.service_failed", agent(f"{HEAD} gx01 systemd[1]: {FAILED}", path="/var/log/syslog")),
    "syslog file, what follows a line end": Expected(
        LOCAL, "gpu.xid", agent(f"{HEAD} gx01 alice: a\n[  100.000100] {XID}", path="/var/log/messages")),
    "a log host's file": Expected(
        NETWORK, "gpu.xid", agent(f"{HEAD} gx01 kernel: [100.000100] {XID}", "loghost", path="/var/log/remote/gx01.log", source="syslog")),
    "a log host's own file": Expected(
        NETWORK, "gpu.xid", agent(f"{HEAD} gx01 kernel: [100.000100] {XID}", "loghost.site.org", path="/var/log/syslog")),
    # Syslog over the network, by an address.
    "network, another address": Expected(NETWORK, "gpu.xid", network(f"<3>{HEAD} gx01 kernel: [100.000100] {XID}")),
    "network, its own address": Expected(LOCAL, "gpu.xid", network(f"<3>{HEAD} 10.9.9.9 kernel: [100.000100] {XID}")),
    "network, facility user": Expected(NETWORK, "other", network(f"<11>{HEAD} gx01 kernel: [100.000100] {XID}")),
    "network, without a header": Expected(NETWORK, "other", network(f"[  100.000100] {XID}")),
    "network, no event": Expected(NETWORK, "other", network(f"<30>{HEAD} 10.9.9.9 sshd[4]: Server listening.")),
    "network, slurmctld": Expected(NETWORK, "slurm.node_down", network(f"<27>{HEAD} ctl slurmctld[7]: {DOWN}")),
    "network, a switch": Expected(DEVICE, "switch.port_down", network(f"<189>{HEAD} 10.9.9.9 : {PORT}")),
    "network, a switch's name": Expected(NETWORK, "switch.port_down", network(f"<189>{HEAD} leaf01 : {PORT}")),
    "file, a switch's folder": Expected(DEVICE, "switch.port_down", file("switches/leaf01/syslog", f"<189>{HEAD} leaf01 : {PORT}")),
    "file, like a switch in a node's": Expected(LOCAL, "switch.port_down", file("nodes/gx01/other.log", f"<189>{HEAD} gx01 : {PORT}")),
    # What a job wrote.
    "file, a job's output": Expected(JOB, "other", file("jobs/7/stdout", f"[123.4] {XID}")),
    "file, a job's errors": Expected(JOB, "job.cuda_error", file("jobs/8/stderr", "RuntimeError: CUDA error: uncorrectable ECC error encountered")),
    "agent, a job's output": Expected(JOB, "job.cuda_error", agent("RuntimeError: CUDA error: x", stream="o", source="job_stdout", job_id=7)),
    # Shippers: the file that they name, or nothing.
    "loki, no file": Expected(UNVERIFIED, "gpu.xid", loki(f"{HEAD} gx01 kernel: [100.000100] {XID}")),
    "loki, like the ring": Expected(UNVERIFIED, "gpu.xid", loki(f"[  100.000100] {XID}")),
    "loki, a file": Expected(LOCAL, "gpu.xid", loki(f"{HEAD} gx01 kernel: [100.000100] {XID}", filename="/var/log/syslog")),
    "otlp, no file": Expected(UNVERIFIED, "gpu.xid", otlp(f"{HEAD} gx01 kernel: [100.000100] {XID}")),
    "otlp, slurmctld's file": Expected(
        DAEMON, "slurm.node_down", otlp(f"[2026-02-28T10:20:00.100] {DOWN}", **{"log.file.path": "/var/log/slurm/slurmctld.log"})),
    "elasticsearch": Expected(UNVERIFIED, "gpu.xid", elasticsearch(message=XID, programname="nvidia-smi")),
    "elasticsearch, a user by the journal": Expected(
        LOCAL, "other", elasticsearch(message=XID, programname="nvidia-smi", journald={"uid": 1001})),
    "http, no file": Expected(UNVERIFIED, "slurm.node_down", agent(f"[2026-02-28T10:20:00.100] {DOWN}", source="slurmctld")),
    # JSON that rsyslog and syslog-ng write, with what they know of the process.
    "rsyslog, imjournal": Expected(LOCAL, "other", agent(json.dumps({**PROGRAM, "$!": {"_UID": "1001"}}), path="/var/log/all.json")),
    "rsyslog, imuxsock": Expected(LOCAL, "other", agent(json.dumps({**PROGRAM, "$!": {"uid": 1001}}), path="/var/log/all.json")),
    "syslog-ng, journald": Expected(LOCAL, "other", agent(json.dumps({**PROGRAM, "_journald": {"_UID": "1001"}}), path="/var/log/all.json")),
    "syslog-ng, a socket": Expected(LOCAL, "other", agent(json.dumps({**PROGRAM, "_unix": {"uid": 1001}}), path="/var/log/all.json")),
    "rsyslog, root by imuxsock": Expected(LOCAL, "gpu.xid", agent(json.dumps({**PROGRAM, "$!": {"uid": 0}}), path="/var/log/all.json")),
    # Commands of root's.
    "file, a command's answer": Expected(
        ROOT, "other", file("nodes/gx01/ethtool-m-eth0.txt", "\tIdentifier : 0x11 (QSFP28)", "\tVendor name : X", "\tModule temperature : 40.00 degrees C")),
    "file, a node's ip monitor": Expected(
        ROOT, "nic.link_down", file("nodes/gx01/ip-monitor.log", "[2026-02-28T10:20:00.100000] 2: eth0: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 state DOWN group default")),
}  # fmt: skip


@pytest.fixture(scope="module")
def spans() -> dict[str, Spans]:
    """What the store's lines show to have been collected, by SQL and by Polars; filled by ``lines``."""
    return {}


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory, spans: dict[str, Spans]) -> dict[str, dict[str, Any]]:
    """The last line of each way, as ``Logs`` shows it and with the columns that are stored."""
    kept: list[dict[str, Any]] = []
    counts = [0]
    with open_store(None) as store:
        for name, one in WAYS.items():
            one.way(store, tmp_path_factory.mktemp("way"))
            counts.append(store.rows("SELECT count(*) AS n FROM raw.logs")[0]["n"])
            assert counts[-1] > counts[-2], name
            # Lines of later ways may complete it.
            kept += store.rows("SELECT * FROM raw.log_view")[-1:]
        shown = store.rows('SELECT "Authority", "Event" FROM kql."Logs"')
        found = {name: {**shown[n - 1], **last} for name, n, last in zip(WAYS, counts[1:], kept, strict=True)}
        frame = store.frame("SELECT * FROM raw.log_view")
        many = pl.concat([frame] * (-(-collected.MANY_LINES // frame.height)))
        spans |= {
            "sql": asked(store, "c"),
            "frame": spans_in(frame),
            "of many": spans_in(many),
            "coded": spans_in(coded(many)),
        }
    return found


@pytest.mark.parametrize("name", WAYS)
def test_each_way_in(name: str, lines: Mapping[str, dict[str, Any]]) -> None:
    expected, line = WAYS[name], lines[name]
    assert (line["Authority"], line["Event"]) == (expected.authority, expected.event), line


def test_the_table_has_every_value() -> None:
    assert {one.authority for one in WAYS.values()} == set(AUTHORITIES)


@pytest.mark.parametrize("name", [name for name, one in WAYS.items() if one.event != "other"])
def test_the_correlator_agrees(name: str, lines: Mapping[str, dict[str, Any]]) -> None:
    """The event has the value of its line. What no user can have written is believed without reservations."""
    line = lines[name]
    columns = {column: TABLES["logs"][column] for column in event_lines.COLUMNS}
    rows = pl.DataFrame([{column: line[column] for column in columns}], schema=columns)
    rows = rows.with_columns(pl.col("time").fill_null(datetime(2026, 2, 28)))
    (event,) = prepared(rows).events
    assert event.authority == line["Authority"]
    if line["Authority"] == KERNEL:
        assert event.known_by == ""
    if line["Authority"] == DAEMON and event.source == "slurmctld":
        assert event.own


@pytest.mark.parametrize("name", [name for name, one in WAYS.items() if one.event == "other"])
def test_a_claim_is_never_of_who_no_user_can_be(name: str, lines: Mapping[str, dict[str, Any]]) -> None:
    line = lines[name]
    assert not any(tag.startswith(CLAIMS) for tag in line["tags"] or ()) or line["Authority"] not in NO_USERS


#: What a line of a way shows to have been collected from its host; those that are not named here show nothing.
SHOWS = {
    **dict.fromkeys((
        "agent, kmsg", "agent, root wrote to kmsg", "file, dmesg", "agent, journald of the kernel", "upload, kernel transport",
        "agent, journald of a unit", "upload, journald of a unit", "syslog file, no facility", "syslog file, by facility",
        "syslog file, facility kern", "syslog file, slurmd by facility daemon", "syslog file, a system program", "loki, a file",
    ), "kernel"),
    **dict.fromkeys(("agent, journald of slurmd", "agent, slurmd", "agent, slurmd's file of root", "agent, slurmd's file of Slurm's own account"), "slurmd"),
    **dict.fromkeys(("file, slurmctld", "otlp, slurmctld's file", "agent, slurmctld's file of SlurmUser"), "slurmctld"),
    **dict.fromkeys(("network, a switch", "file, a switch's folder", "file, a node's ip monitor"), "switch"),
}  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_what_it_shows_to_be_collected(name: str, lines: Mapping[str, dict[str, Any]]) -> None:
    """No packet in another's name, upload without a file, log host's copy, job's output or claim shows anything; nor does
    the name of a daemon in a syslog file show that daemon's log."""
    columns = TABLES["logs"]
    row = pl.DataFrame([{column: lines[name][column] for column in columns}], schema=columns)
    assert {family for family, _ in spans_in(row)} - {NAMED, LOG_HOST} == ({SHOWS[name]} if name in SHOWS else set())


def test_the_store_shows_the_same_to_be_collected(
    lines: Mapping[str, dict[str, Any]], spans: Mapping[str, Spans]
) -> None:
    assert lines and spans["sql"] == spans["frame"] == spans["of many"] == spans["coded"]
    assert {family for family, _ in spans["sql"]} == {*SHOWS.values(), NAMED, LOG_HOST}


def test_the_address_of_a_host_lets_any_of_its_users_write() -> None:
    """The store's row has the address only; the correlator knows whose it is."""
    columns = {column: TABLES["logs"][column] for column in event_lines.COLUMNS}
    line = {
        "format": "rfc3164", "time": datetime(2026, 2, 28), "host": "gx01", "source": "kernel", "event": "gpu.xid", "facility": "kern",
        "message": XID, "file": "syslog:gx01", "line": 1, "cluster": "c",
    }  # fmt: skip
    rows = [
        line | {"entities": json.dumps({"sender": sender}), "line": at}
        for at, sender in enumerate(("10.0.0.1", "10.9.9.9"), 1)
    ]
    frame = pl.DataFrame([{**dict.fromkeys(columns), **row} for row in rows], schema=columns)
    events = prepared(frame, Senders(nodes={"10.0.0.1": "gx01"})).events
    assert {event.entities["sender"]: event.authority for event in events} in (
        {"10.0.0.1": LOCAL, "10.9.9.9": NETWORK}, {"10.0.0.1": LOCAL}
    )  # fmt: skip


def test_copies_are_as_hard_to_forge_as_the_hardest(tmp_path: Path) -> None:
    with open_store(None) as store:
        file("nodes/gx01/syslog", f"{HEAD} gx01 kernel: [100.000100] {XID}")(store, tmp_path)
        correlate(store)
        alone = store.rows('SELECT "Authority" FROM kql."Events"')
        agent(RING, stream="kmsg", source="kernel", time="2026-02-28T10:20:00Z")(store, tmp_path)
        correlate(store)
        both = store.rows('SELECT "Authority" FROM kql."Events"')
    assert [row["Authority"] for row in alone] == [LOCAL] and [row["Authority"] for row in both] == [KERNEL]


@pytest.mark.long
def test_ticks_give_events_the_same_values(tmp_path: Path) -> None:
    others = ("network, a switch's name", "syslog file, a system program", "agent, a job's output", "agent, slurmd")
    with open_store(None) as store:
        ticker = Ticker(store)
        ticker.tick()
        for name in ("syslog file, no facility", "agent, kmsg", "network, another address", *others):
            WAYS[name].way(store, tmp_path)
            ticker.tick()
        asked = 'SELECT "EventId", "Authority" FROM kql."Events" ORDER BY 1'
        by_ticks = store.rows(asked)
        correlate(store)
        at_once = store.rows(asked)
    assert by_ticks == at_once and {row["Authority"] for row in at_once} == {LOCAL, KERNEL, NETWORK, JOB, DAEMON}


def test_a_false_controllers_own_file_is_roots(tmp_path: Path) -> None:
    with open_store(None) as store:
        agent(f"[2026-02-28T10:20:00.100] {DOWN}", path="/var/log/slurm/slurmctld.log")(store, tmp_path)
        agent(f"[2026-02-28T10:21:00.100] {DOWN}", "ctl", path="/var/log/slurm/slurmctld.log")(store, tmp_path)
        store.set_fact(disowned.FACT, disowned.fact([("c", "gx01")], (), [("c", "gx01")]))
        shown = {line["host"]: (line["event"], line["authority"]) for line in Reader(store).lines(Range(None, None))[0]}
        connection = store.cursor()
        answered = run(connection, "Logs | project Host, Event, Authority").rows
        connection.close()
    assert shown == {"gx01": ("other", ROOT), "ctl": ("slurm.node_down", DAEMON)}
    assert {host: (event, value) for host, event, value in answered} == shown


def test_a_store_of_an_older_version_has_the_column(tmp_path: Path) -> None:
    """Also if it is only read: its views are made anew."""
    with open_store(tmp_path) as store:
        WAYS["agent, kmsg"].way(store, tmp_path)
        correlate(store)
        with store.transaction() as connection:
            for table in ("Events", "Logs"):
                connection.execute(f'DROP VIEW kql."{table}"')
                connection.execute(f'CREATE VIEW kql."{table}" AS SELECT 1 AS "Time"')
            connection.execute("ALTER TABLE model.events DROP COLUMN authority")
    with open_store(tmp_path, read_only=True) as store:
        connection = store.cursor()
        answers = [run(connection, f"{table} | project Authority").rows for table in ("Logs", "Events")]
        connection.close()
    assert answers == [[[KERNEL]], [[UNVERIFIED]]]


def test_lines_with_events_are_counted(tmp_path: Path) -> None:
    with open_store(None) as store:
        for name in (
            "agent, kmsg",
            "syslog file, no facility",
            "syslog file, facility kern",
            "syslog file, facility user",
        ):
            WAYS[name].way(store, tmp_path / name)
        found = store.ask(counted())
    assert found == [
        {"authority": KERNEL, "source": "kernel", "lines": 1},
        {"authority": LOCAL, "source": "kernel", "lines": 2},
    ]


def test_words() -> None:
    assert in_words(KERNEL, "gpu02") == "the kernel of gpu02, by its own ring"
    assert in_words(LOCAL, "gpu02") == "any user of gpu02 could have written this"
    assert in_words(None, "gpu02") == in_words("x", "gpu02") == ""
    assert all(in_words(value, None) for value in AUTHORITIES)
    assert surest([NETWORK, LOCAL, ROOT]) == ROOT and surest([]) == ""


#: Values of the columns that decide, with what each condition of the rule tells apart.
DECIDING: dict[str, tuple[str | None, ...]] = {
    "format": (None, "slurm", "rfc3164", "journald", "kmsg", "plain", "continuation", "ip_link", "relayed", "klog"),
    "source": (None, "kernel", "syslog", "slurmctld", "job_stdout", "switch", "bmc", "prolog", "opensm", "klog"),
    "facility": (None, "", "user", "kern", "daemon"),
    "host": (None, "gx01", "GX01.site", "loghost"),
    "file": (
        None, "", "syslog:10.0.0.1", "journal:gx01", "loki:gx01", "loki/x", "http/gx01", "gx01:/var/log/syslog", "gx01:nvml",
        "loghost:/var/log/gx01.log", "elasticsearch:i/h", "hosts/gx01/kern.log", "nodes/gx01/x.log", "switches/leaf1/syslog",
    ),
    "event": ("gpu.xid", "slurm.node_down"),
    "entities": (None, '{"sender":"10.0.0.1"}', '{"xid":79}'),
}  # fmt: skip


#: A collected file, the host that a line of it names, and whether that is another host than the file's.
OF_OTHERS = [
    ("gx01:/var/log/syslog", "gx01.site", False), ("Gx01.site:/var/log/syslog", "gx01", False), ("loghost:/var/log/syslog", "gx01", True),
    ("10.0.0.2:/var/log/syslog", "10.0.0.1", True), ("10.0.0.1:/var/log/syslog", "10.0.0.1", False),
]  # fmt: skip


@pytest.mark.parametrize(("file", "host", "other"), OF_OTHERS)
def test_a_file_of_another_host(file: str, host: str, other: bool) -> None:
    """Two addresses that begin alike are two hosts, in all three spellings of the question."""
    row = {"format": "rfc3164", "source": "syslog", "host": host, "file": file, "event": "nic.link_down", "line": 1}
    rows = frame("logs", [row])
    value = NETWORK if other else LOCAL
    assert authority_of_events(rows).to_list() == [value]
    with DuckStore(None) as store:
        store.add({"logs": rows})
        counts = Speakers(hosts=[host], remote=False).count(LINES)
        (found,) = store.ask(sa.select(authority(LINES).label("value"), counts.label("counts")))
    assert found == {"value": value, "counts": not other}
    assert (owner_of(file) != short_key(host)) is other


@pytest.mark.parametrize("count", [0, 1, 5_000])
def test_lines_that_are_alike_get_what_the_rule_gives_each_of_them(count: int) -> None:
    rng = random.Random(count)
    rows = {name: [rng.choice(values) for _ in range(count)] for name, values in DECIDING.items()}
    lines = pl.DataFrame(rows, schema=dict.fromkeys(DECIDING, pl.String))
    by_rule: Any = pl.lit(UNVERIFIED)
    for value, conditions in reversed(_RULE):
        if all(one.of_events for one in conditions):
            by_rule = pl.when(pl.all_horizontal(one.frame for one in conditions)).then(pl.lit(value)).otherwise(by_rule)
    wanted = lines.select(by_rule.alias("authority")).to_series().to_list()
    assert authority_of_events(lines).to_list() == wanted
    # The same by the columns that are asked of the store, which say nothing of lines in no log of their host.
    writers = frame("logs", lines.to_dicts())
    writers = writers.select(writer_expressions(writers))
    of_agents = [str(file).endswith(":nvml") for file in rows["file"]]
    found = authority_of_writers(writers).to_list()
    assert [None if ours else value for value, ours in zip(wanted, of_agents, strict=True)] == found
    with DuckStore(None) as store:
        store.add({"logs": frame("logs", [row | {"line": n} for n, row in enumerate(lines.to_dicts())])})
        asked = store.ask_frame(sa.select(*writer_columns(LINES)).order_by(LINES.c.line))
    assert asked.rows() == writers.rows()


@pytest.mark.parametrize(
    ("path", "owner", "read"),
    [
        ("/var/log/slurm/jobcomp.log", "5001", True),
        ("/scratch/x/jobcomp.log", "0", True),
        ("/scratch/x/jobcomp.log", "20003", False),
    ],
)
def test_accounting_in_a_persons_file_is_text(path: str, owner: str, read: bool) -> None:
    row = (
        "JobId=77 UserId=bob(1001) GroupId=bob(1001) Name=x JobState=NODE_FAIL Partition=gpu TimeLimit=60 StartTime=2026-02-28T10:00:00"
        " EndTime=2026-02-28T10:20:00 NodeList=gx02 NodeCnt=1 ProcCnt=1 WorkDir=/home/bob SubmitTime=2026-02-28T09:00:00 ExitCode=0:0"
    )
    record = {
        "host": "gx01",
        "cluster": "c",
        "lines": row,
        "read": AT,
        "document": "jobcomp",
        "path": path,
        "owner": owner,
    }
    into = Decoded()
    given = Payload(
        (json.dumps(record) + "\n").encode(), {"received": micros(AT), "peer": "10.9.9.9", "form": "records"}
    )
    all_receivers()["ingest"].decode(given, into)
    assert [found.tables["jobs"].height for found in into.parsed] == ([1] if read else [])
    assert into.lines == (0 if read else 1)
