"""A token for sending expires, and is bound to hosts, clusters and kinds of data."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from receiver_requests import ask, frames

from collector import decoding
from collector.decoding import Job, Outcome
from collector.intake import Intake
from collector.segment_file import Position
from collector.senders import Limits, Sender, SenderError, digest_of
from collector.spool import Spool
from faultline.config import Config
from faultline.exposure import wrong_and_open
from faultline.users_file import run
from tests.line_parser import line_parser
from web.access.users import Users

PARSER = line_parser()
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."


def sent(spool: Spool, limits: Limits, *records: dict[str, Any], end: datetime | None = None) -> Any:
    """The answer to a batch of a sender."""
    sender = Sender("racks", digest_of("s3cret"), end, limits)
    intake = Intake(spool, senders=lambda: [sender])
    body = "".join(json.dumps(record) + "\n" for record in records).encode()
    given = {"content_type": "application/x-ndjson", "authorization": "Bearer s3cret"}
    return ask(intake, "POST", "/api/v1/ingest", body, **given)


def stored(spool: Spool) -> Outcome:
    jobs = [
        Job(r.path, r.payload_offset, r.payload_bytes, r.payload_crc, r.meta)
        for r in spool.read(Position(0, 0), 1 << 40)
    ]
    return decoding.work(jobs, PARSER)


def line(host: str, **more: str) -> dict[str, Any]:
    return {"host": host, "path": "/var/log/syslog", "message": f"2026-02-28T10:00:00Z {host} kernel: {XID}", **more}


ENDS = {"never": (None, 200), "tomorrow": (1, 200), "yesterday": (-1, 403)}


@pytest.mark.parametrize(("days", "status"), ENDS.values(), ids=ENDS)
def test_a_token_that_has_ended_is_refused(days: int | None, status: int, spool: Spool) -> None:
    end = None if days is None else datetime.now(UTC) + timedelta(days=days)
    answer = sent(spool, Limits("racks"), line("gpu01"), end=end)
    assert answer.status == status
    assert status == 200 or b"ended on" in answer.body


@pytest.mark.parametrize("token", ["", "Bearer other"])
def test_where_senders_are_configured_nobody_sends_without(token: str, spool: Spool) -> None:
    """Also while the file names none: an empty file grants no access."""
    intake = Intake(spool, senders=lambda: [])
    answer = ask(intake, "POST", "/api/v1/ingest", b"x\n", content_type="text/plain", authorization=token)
    assert answer.status == (403 if token else 401)


def test_a_line_of_another_host_means_nothing_and_keeps_its_text(spool: Spool) -> None:
    assert sent(spool, Limits("racks", hosts=("gpu[01-02]",)), line("gpu01"), line("gpu03")).status == 200
    rows = frames(stored(spool))["logs"].sort("line", "message").to_dicts()
    found = {
        (r["host"], r["event"], "foreign" in (r["tags"] or []), "claims:gpu.xid" in (r["tags"] or [])) for r in rows
    }
    assert found == {("gpu01", "gpu.xid", False, False), (None, "other", True, True)}
    assert all("Xid" in r["raw"] for r in rows)


DOWN = "[2026-02-28T10:16:00.000] error: Nodes gpu02 not responding, setting DOWN"
WITH_HOST = {"none": (None, "other", {"foreign", "claims:slurm.node_down"}), "ctl": ("ctl", "slurm.node_down", set())}


@pytest.mark.parametrize(("host", "event", "tags"), WITH_HOST.values(), ids=WITH_HOST)
def test_a_line_of_slurmctld_names_its_host(host: str | None, event: str, tags: set[str], spool: Spool) -> None:
    """Where no host is known, a file of slurmctld's counts as the controller's. So a bound sender must name one."""
    record = {"path": "/var/log/slurm/slurmctld.log", "source": "slurmctld", "message": DOWN}
    assert sent(spool, Limits("racks", hosts=("ctl",)), record | ({"host": host} if host else {})).status == 200
    (row,) = frames(stored(spool))["logs"].to_dicts()
    assert (row["host"], row["event"], set(row["tags"] or []) - {"assumed"}) == (host, event, tags)


HOSTS = {
    "in the list": ("gpu02", True),
    "whole name": ("gpu02.example.org", True),
    "pattern": ("login7", True),
    "another": ("gpu09", False),
}


def test_an_address_is_no_name_with_a_domain() -> None:
    assert not Limits("racks", hosts=("10",)).stands_for("10.0.0.1", None)
    assert Limits("racks", hosts=("10.0.*",)).stands_for("10.0.0.1", None)


@pytest.mark.parametrize(("host", "ours"), HOSTS.values(), ids=HOSTS)
def test_hosts_are_lists_or_patterns(host: str, ours: bool, spool: Spool) -> None:
    sent(spool, Limits("racks", hosts=("gpu[01-02]", "login*")), line(host))
    (row,) = frames(stored(spool))["logs"].to_dicts()
    assert (row["host"] == host, row["event"] == "gpu.xid") == (ours, ours)


METRIC = {"host": "gpu01", "document": "prometheus", "raw": "node_load1 0.5", "path": "x.prom"}
SACCT = "JobID|User|State|Start|End|NodeList\n500|bob|COMPLETED|2026-02-28T10:00:00|2026-02-28T11:00:00|gpu01\n"
OF_NODE = Limits("racks", hosts=("gpu01",), kinds=("lines", "output", "metrics", "documents"))


def document(kind: str, text: str) -> dict[str, Any]:
    return {"host": "gpu01", "document": kind, "raw": text, "path": f"{kind}.txt"}


KINDS = {
    "accounting by a compute node": (OF_NODE, document("sacct", SACCT), "sent cluster"),
    "slurm.conf by a compute node": (OF_NODE, document("slurm_conf", "SlurmctldHost=gpu01\n"), "sent cluster"),
    "topology by a compute node": (OF_NODE, document("topology_conf", "SwitchName=s1 Nodes=gpu01\n"), "sent cluster"),
    "a hook by a compute node": (OF_NODE, document("hook_env", "SLURM_JOB_ID=500\nSLURM_JOB_USER=bob\n"), None),
    "accounting by a controller": (Limits("ctl", ("gpu01",), (), ("lines", "cluster")), document("sacct", SACCT), None),
    "lines where lines are meant": (Limits("racks", kinds=("lines",)), line("gpu01"), None),
    "lines where samples are": (Limits("racks", kinds=("metrics",)), line("gpu01"), "sent lines"),
    "output where lines are": (
        Limits("racks", kinds=("lines",)), {"host": "gpu01", "source": "job_stdout", "job_id": 7, "message": "x"}, "sent output",
    ),
    "samples where lines are": (Limits("racks", kinds=("lines",)), METRIC, "sent metrics"),
    "samples of another host": (Limits("racks", hosts=("gpu02",)), METRIC, "does not stand for the host 'gpu01'"),
}  # fmt: skip


@pytest.mark.parametrize(("limits", "record", "why"), KINDS.values(), ids=KINDS)
def test_data_of_another_kind_or_documents_of_another_host_go_to_quarantine(
    limits: Limits, record: dict[str, Any], why: str | None, spool: Spool
) -> None:
    assert sent(spool, limits, record).status == 200
    reasons = [reason for _, reason in stored(spool).poison]
    assert (why is None and not reasons) or (why is not None and len(reasons) == 1 and why in reasons[0])


def test_a_line_of_another_cluster_means_nothing(spool: Spool) -> None:
    sent(spool, Limits("racks"), line("gpu01"), line("gpu02"))
    rows = (
        frames(stored(spool))["logs"]
        .sort("host")
        .with_columns(pl.col(pl.Categorical).cast(pl.String), pl.Series("cluster", ["alps", "jura"]))
    )
    kept = Limits("racks", clusters=("alps",)).lines(rows)
    assert kept.select("host", "cluster", "event").rows() == [("gpu01", "alps", "gpu.xid"), ("gpu02", None, "other")]


def test_the_command_makes_one_and_check_names_what_is_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "senders.toml"
    assert run("sender", "racks", file, 90, limits=Limits("", ("gpu[01-02]",), ("alps",), ("lines",))) == 0
    token = capsys.readouterr().out.strip()
    kept = Users.load(file).senders["racks"]
    assert kept.digest == digest_of(token) and kept.limits == Limits("racks", ("gpu[01-02]",), ("alps",), ("lines",))
    assert kept.expires is not None and 89 < (kept.expires - datetime.now(UTC)).days + 1 <= 90
    assert run("sender", "any", file, 0) == 0 and run("list", "", file) == 0
    assert "hosts gpu[01-02], clusters alps, data lines, ends" in capsys.readouterr().out
    _, opened = wrong_and_open(Config(ingest={"senders": file, "tokens": ["plain"]}), None, None)
    reported = "\n".join(opened)
    assert (
        "'any': its token never ends" in reported
        and "'any': may send as any host" in reported
        and "'racks'" not in reported
    )
    assert "1 token never end and may send anything" in reported
    assert run("remove", "any", file) == 0 and set(Users.load(file).senders) == {"racks"}


def test_a_table_of_the_configuration_ends_and_is_bound() -> None:
    given = {
        "token": "s3cret",
        "name": "racks",
        "expires": datetime(2027, 1, 1, tzinfo=UTC),
        "hosts": ["gpu01"],
        "data": ["lines"],
    }
    (sender,) = Config(ingest={"tokens": ["plain", given]}).ingest.bound
    assert (sender.digest, sender.expires, sender.limits) == (
        digest_of("s3cret"), given["expires"], Limits("racks", ("gpu01",), (), ("lines",))
    )  # fmt: skip


WRONG = [
    {},
    {"token": ""},
    {"token": "x", "scope": "all"},
    {"token": "x", "data": ["all"]},
    {"token": "x", "hosts": "gpu01"},
    {"token": "x", "expires": "2027"},
]


@pytest.mark.parametrize("given", WRONG)
def test_what_is_not_understood_is_no_limit_that_is_left_out(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Config(ingest={"tokens": [given]})
    with pytest.raises(SenderError):
        Sender.read("racks", {**given, "expires": "2027"})
