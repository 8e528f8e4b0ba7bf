"""Reports: right counts over the real captures, honest texts over an empty store, and nothing unescaped on a page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from parsers import extensions
from queries import reports
from queries.reports.model import SHOWN
from queries.reports.wording import length, worded
from store import open_store
from store.door import Door
from tests.replaced_model import replace_model

ROOT = Path(__file__).parents[3]
CAPTURES = ROOT.parent / "shared" / "captures"
DAY = datetime(2026, 3, 1)
EVIL = "<script>alert('x')</script>|`*"


def rows(document: reports.Document, section: str, table: int = 0) -> list[dict[str, Any]]:
    return [dict(row) for row in document.section(section).tables[table].rows]


def figures(document: reports.Document, section: str) -> dict[str, Any]:
    return {figure.label: figure.value for figure in document.section(section).figures}


def at(minutes: float) -> datetime:
    return DAY + timedelta(minutes=minutes)


def a_run(number: int, state: str, category: str | None, end: float, **more: Any) -> dict[str, Any]:
    return {
        "run_key": str(number), "cluster": "c1", "job_id": number, "attempt": 0, "name": "train", "user": "ann", "account": "ml",
        "partition": "gpu", "state": state, "submit": at(end - 70), "start": at(end - 60), "end": at(end), "nodes": ["n1"],
        "node_count": 1, "gpus": 8, "time_limit_s": 7200, "category": category, "incident_id": None, "confidence": 0.9, "document": None, **more,
    }  # fmt: skip


def an_incident(
    name: str, root: str, host: str | None, device: str | None, start: float, jobs: list[str], **more: Any
) -> dict[str, Any]:
    document = {"id": name, "title": f"{root} at {host}", "hosts": [host, "n9"], "jobs": [{"job_id": j} for j in jobs],
                "gpu_hours_lost": 8.0 * len(jobs), "spans": [], "doubts": [], **more}  # fmt: skip
    return {
        "incident_id": name, "cluster": "c1", "start": at(start), "end": at(start + 5), "severity": "impact" if jobs else "benign",
        "category": "infra.network", "root_event": root, "root_host": host, "root_device": device, "document": json.dumps(document),
    }  # fmt: skip


def an_event(kind: str, host: str | None, device: str | None, minutes: float, **more: Any) -> dict[str, Any]:
    return {"event_id": f"{kind}{host}{minutes}", "time": at(minutes), "cluster": "c1", "host": host, "event": kind, "device": device,
            "message": "", "entities": "{}", "count": 1, **more}  # fmt: skip


@pytest.fixture
def empty() -> Iterator[Door]:
    with open_store(None) as store:
        yield store


@pytest.fixture
def small(empty: Door) -> Door:
    """Three links lost, one reboot in between, two drains, and jobs of a malicious user."""
    state = {"cluster": "c1", "host": "n3", "until": None, "reason": None, "actor": None, "source": "poll"}
    replace_model(empty, {
        "runs": pl.DataFrame([
            a_run(1, "COMPLETED", None, 60), a_run(2, "NODE_FAIL", "infra.network", 100, incident_id="I-1"),
            a_run(3, "NODE_FAIL", "infra.network", 101, incident_id="I-1"), a_run(4, "FAILED", "app.error", 200, name=EVIL, user=EVIL),
            a_run(5, "FAILED", "app.error", 260, name=EVIL, user=EVIL), a_run(6, "TIMEOUT", "app.timeout", 300),
            a_run(7, "NODE_FAIL", "infra.node", 310, gpus=None), a_run(8, "FAILED", "unknown", 320, confidence=0.3),
            {**a_run(9, "RUNNING", None, 400), "end": None},
        ], infer_schema_length=None),
        "incidents": pl.DataFrame([
            an_incident("I-1", "nic.link_flap", "n1", "eth0", 95, ["2", "3"], doubts=["no switch log"], spans=[
                {"kind": "no_carrier", "host": "n1", "device": "eth0", "start": "a"}, {"kind": "no_carrier", "host": "n1", "device": "eth0", "start": "b"},
                {"kind": "late", "host": "n1", "device": None, "start": "a"}]),
            an_incident("I-2", "node.reboot", "n2", None, 150, []),
        ], infer_schema_length=None),
        "events": pl.DataFrame([
            an_event("nic.link_down", "n1", "eth0", 95), an_event("nic.link_down", "n1", "eth0", 95.5), an_event("nic.link_up", "n1", "eth0", 96),
            an_event("nic.link_down", None, "eth0", 95.1), an_event("nic.link_down", "n1", "eth0", 97), an_event("nic.link_up", "n1", "eth0", 100),
            an_event("switch.port_down", "s1", "p2", 150), an_event("nic.link_down", "n2", "hsn0", 150), an_event("nic.link_down", "n2", "hsn0", 170),
            an_event("slurm.node_drain", "ctl", None, 180, layer="slurmctld", entities='{"nodes": ["n4"]}'),
        ], infer_schema_length=None),
        "node_states": pl.DataFrame([
            {**state, "time": at(10), "state": "idle"}, {**state, "time": at(20), "state": "down*", "reason": "Not responding"},
            {**state, "time": at(30), "state": "idle"}, {**state, "time": at(40), "state": "drained", "reason": EVIL, "actor": "root"},
            {**state, "time": at(50), "state": "drained", "reason": EVIL},
        ], infer_schema_length=None),
    })  # fmt: skip
    return empty


@pytest.fixture(scope="module")
def captured() -> Iterator[Door]:
    """One store that holds every capture of the mini cluster."""
    folders = sorted(path.parent for path in CAPTURES.glob("*/truth.json"))
    if len(folders) < 14:
        pytest.skip(f"{CAPTURES} does not hold the 14 captures of a real mini cluster")
    from collector.ingest import Ingest
    from correlator.engine import correlate
    from parsers.engine import LineParser

    with open_store(None) as store:
        Ingest(store, parser=LineParser()).run(folders)
        correlate(store)
        yield store


def test_summary_counts_what_ended_and_what_it_cost(small: Door) -> None:
    document = reports.run(small, "failure-patterns")
    numbers = figures(document, "summary")
    assert (numbers["Jobs ended"], numbers["Ended badly"], numbers["Cluster at fault"], numbers["Incidents"]) == (
        8,
        7,
        3,
        2,
    )
    assert numbers["GPU-hours of bad ends"] == pytest.approx(48.0)
    assert numbers["GPU-hours lost to incidents"] == pytest.approx(16.0)
    assert {r["category"]: r["jobs"] for r in rows(document, "summary")} == {
        "app.error": 2, "app.timeout": 1, "infra.network": 2, "infra.node": 1, "unknown": 1}  # fmt: skip
    assert {r["state"]: r["jobs"] for r in rows(document, "summary", 1)} == {"NODE_FAIL": 3, "FAILED": 3, "TIMEOUT": 1}
    assert [(r["severity"], r["incidents"], r["jobs"]) for r in rows(document, "summary", 2)] == [
        ("impact", 1, 2),
        ("benign", 1, 0),
    ]


def test_causes_are_ranked_by_harm_and_count_each_job_once(small: Door) -> None:
    found = rows(reports.run(small, "failure-patterns"), "causes")
    reported = [
        (r["cause"], r["host"], r["device"], r["incidents"], r["outages"], r["jobs"], round(r["gpu_hours"]))
        for r in found
    ]
    assert reported[:2] == [("nic.link_flap", "n1", "eth0", 1, 2, 2, 16), ("app.error", None, None, 0, None, 2, 16)]
    assert ("root not found", None, None, 0, None, 1, 0) in reported
    assert sum(r["jobs"] for r in found) == 7


def test_the_period_bounds_when_things_ended(small: Door) -> None:
    since = at(100).replace(tzinfo=UTC).astimezone()
    document = reports.run(small, "failure-patterns", since=since, until=at(200))
    numbers = figures(document, "summary")
    assert (numbers["Jobs ended"], numbers["Incidents"]) == (2, 2), "since is inclusive, until is not"
    assert document.since == at(100)
    assert figures(reports.run(small, "failure-patterns", since=at(5000)), "summary")["Jobs ended"] == 0


def test_outages_join_repeats_and_copies_and_stop_at_a_reboot(small: Door) -> None:
    found = {(r["host"], r["device"]): r for r in rows(reports.run(small, "failure-patterns"), "network")}
    eth0 = found["n1", "eth0"]
    assert (eth0["outages"], eth0["down_s"], eth0["longest_s"], eth0["jobs"]) == (2, 240.0, 180.0, 2)
    assert (found["n2", "hsn0"]["outages"], found["n2", "hsn0"]["open"]) == (2, 1)
    assert (found["s1", "p2"]["side"], found["s1", "p2"]["open"]) == ("switch", 1)


def test_nodes_out_of_service_with_reason_length_and_whether_still_so(small: Door) -> None:
    found = {(r["host"], r["state"]): r for r in rows(reports.run(small, "failure-patterns"), "unavailable")}
    down, drained = found["n3", "down"], found["n3", "drained"]
    assert (down["out_s"], down["since"], down["reason"]) == (600.0, None, "Not responding")
    so_far = 140 * 60.0  # up to the newest record of the cluster, not to the last one about the node
    assert (drained["out_s"], drained["since"], drained["reason"], drained["actor"]) == (so_far, at(40), EVIL, "root")
    assert found["n4", "drained"]["since"] == at(180), "a drain that only slurmctld's log tells of"


def test_lemons_and_nodes_that_others_touch(small: Door) -> None:
    small.set_fact("lemons", '["n1"]')
    found = {r["host"]: r for r in rows(reports.run(small, "failure-patterns"), "nodes")}
    assert (found["n1"]["rooted"], found["n1"]["lemon"], found["n1"]["jobs"]) == (1, True, 2)
    assert (found["n9"]["rooted"], found["n9"]["touched"], found["n9"]["lemon"]) == (0, 2, False)


def test_repeats_limits_and_blind_spots(small: Door) -> None:
    document = reports.run(small, "failure-patterns")
    assert [(r["user"], r["failed"], r["categories"]) for r in rows(document, "repeated")] == [
        ("ann", 5, ["app.timeout", "infra.network", "infra.node", "unknown"]), (EVIL, 2, ["app.error"])]  # fmt: skip
    assert [(r["what"], r["user"], r["jobs"]) for r in rows(document, "limits")] == [("time limit", "ann", 1)]
    seen = figures(document, "coverage")
    assert (seen["Verdicts"], seen["Unknown"], seen["With doubts"], seen["Late lines"]) == (7, 1, 1, 1)
    notes = " ".join(document.section("coverage").notes)
    assert (
        "No slurmctld's log" in notes
        and "without a known end (still running, or traces only), which are in no count: 1." in notes
    )


def test_an_empty_store_gives_a_report_that_says_so(empty: Door) -> None:
    for name in reports.all_reports():
        document = reports.run(empty, name)
        page, text, data = (reports.render(document, form) for form in ("html", "md", "json"))
        assert (
            "None" not in re.sub(r"<style>.*</style>", "", page, flags=re.S).replace("None.", "") and "nan" not in text
        )
        assert json.loads(data)["name"] == name
    text = reports.render(reports.run(empty, "failure-patterns"), "md")
    assert "No job or incident ended in this period" in text and "No switch logs in the store" in text


class Tags(HTMLParser):
    """The elements of a page, whether all are closed, and what it would load."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.loads += [
            value or "" for name, value in attrs if name in ("src", "href") and not (value or "").startswith("#")
        ]
        if tag not in ("meta", "link", "br") and tag != "rect":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag


def test_a_page_is_self_contained_well_formed_and_escapes_names(small: Door) -> None:
    page = reports.render(reports.run(small, "failure-patterns"), "html")
    tags = Tags()
    tags.feed(page)
    assert tags.open == [] and tags.loads == [] and "script" not in tags.seen
    assert "&lt;script&gt;alert(&#39;x&#39;)" in page
    assert {"svg", "table", "style"} <= tags.seen and "prefers-color-scheme:dark" in page and "@media print" in page


def test_markdown_keeps_its_columns_and_escapes_names(small: Door) -> None:
    text = reports.render(reports.run(small, "failure-patterns"), "md")
    assert "<script>" not in text and "&lt;script&gt;alert('x')&lt;/script&gt;\\|\\`\\*" in text
    width = 0
    for line in text.splitlines():
        bars = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert bars == width or width == 0 or bars == 0, line
        width = bars


def test_json_holds_all_rows_and_pages_say_how_many_more(empty: Door) -> None:
    names = [a_run(n, "FAILED", "app.error", 60 + n, name=f"job{n // 2}") for n in range(4 * SHOWN)]
    replace_model(empty, {"runs": pl.DataFrame(names, infer_schema_length=None)})
    document = reports.run(empty, "failure-patterns")
    data = {s["key"]: s for s in json.loads(reports.render(document, "json"))["sections"]}
    assert len(data["repeated"]["tables"][0]["rows"]) == 2 * SHOWN
    assert data["repeated"]["tables"][0]["rows"][0]["first_seen"].endswith("Z")
    for form in ("html", "md"):
        assert f"{SHOWN} more rows in the JSON form." in reports.render(document, form)


def test_several_clusters_are_distinguished(empty: Door) -> None:
    runs = [a_run(1, "FAILED", "app.error", 60), a_run(1, "FAILED", "app.error", 60, cluster="c2")]
    replace_model(empty, {"runs": pl.DataFrame(runs, infer_schema_length=None)})
    assert [r["cluster"] for r in rows(reports.run(empty, "failure-patterns"), "causes")] == ["c1", "c2"]
    assert rows(reports.run(empty, "failure-patterns"), "repeated") == [], (
        "one failure in each cluster is no repetition"
    )


def test_usage_by_user(small: Door) -> None:
    document = reports.run(small, "usage")
    ann = next(r for r in rows(document, "usage") if r["of"] == "ann")
    assert (ann["jobs"], ann["badly"], ann["infra"], ann["gpu_hours"], ann["wait_s"]) == (6, 5, 3, 40.0, 600.0)
    assert figures(document, "usage")["GPU-hours"] == pytest.approx(56.0)


def test_wrong_names_are_refused_with_the_right_ones(empty: Door) -> None:
    with pytest.raises(reports.ReportError, match="failure-patterns, repairs, usage"):
        reports.run(empty, "nonsense")
    with pytest.raises(reports.ReportError, match="html, md, json"):
        reports.render(reports.run(empty, "usage"), "pdf")
    with pytest.raises(reports.ReportError, match="is not before"):
        reports.run(empty, "usage", since=at(5), until=at(5))


class Entry:
    """The interface of ``importlib.metadata``."""

    def __init__(self, name: str, found: object) -> None:
        self.name = self.value = name
        self.group = reports.GROUP
        self.found = found

    def load(self) -> object:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def test_reports_of_other_packages_join_and_broken_ones_do_no_harm(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = reports.Report("mine", "Mine", "Ours.", lambda reader: [])
    entries = [Entry("mine", mine), Entry("broken", ImportError("no such module")), Entry("odd", 3),
               Entry("usage", reports.Report("usage", "x", "x", lambda reader: []))]  # fmt: skip
    monkeypatch.setattr(extensions, "_warned", {})
    monkeypatch.setattr(extensions, "_known", {})
    monkeypatch.setattr(extensions, "_brought", {})
    monkeypatch.setattr(extensions, "entry_points", lambda group: entries if group == "faultline.reports" else [])
    found = reports.all_reports.__wrapped__()
    assert found["mine"] is mine and found["usage"] is reports.all_reports()["usage"] and "broken" not in found
    logged = capsys.readouterr().err
    assert all(word in logged for word in ("no such module", "of type int, not Report", "is taken"))


@pytest.mark.parametrize("kind", ["when", "number", ""])
def test_a_kind_of_column_that_does_not_exist_is_refused_with_the_list(kind: Any) -> None:
    there = "text, name, count, hours, seconds, share, time, flag"
    with pytest.raises(ValueError, match=f"column 'last': there is no kind '{kind}', but {there}"):
        reports.Column("last", "Last", kind)


@pytest.mark.parametrize(
    ("found", "columns", "absent"),
    [
        ([{"host": "a", "runs": 1}], ("host", "latest"), "'latest'"),
        ([{"host": "a", "runs": 1}], ("latest", "newest", "host"), "'latest', 'newest'"),
        ([{"host": "a"}, {"host": "b", "latest": DAY, "runs": 2}], ("host", "latest"), None),
        ([{"host": "a", "runs": None}], ("host", "runs"), None),
        ([], ("host", "latest"), None),
    ],
)
def test_a_column_that_is_in_no_row_is_named_with_those_that_are(
    found: list[dict[str, Any]],
    columns: tuple[str, ...],
    absent: str | None,
    empty: Door,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extensions, "_warned", {})
    shown = reports.Reader(empty, None, None).table("By host", [reports.Column(key, key) for key in columns], found)
    assert [column.key for column in shown.columns] == list(columns)
    says = f"a report: table 'By host': column {absent} is in no row; there is host, runs"
    assert extensions.problems() == ([says] if absent else [])


def test_no_built_in_report_has_a_column_that_is_in_no_row(small: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "_warned", {})
    for report in reports.BUILT_IN:
        reports.run(small, report.name)
    assert extensions.problems() == []


def test_the_document_names_every_report_and_section(empty: Door) -> None:
    text = (ROOT / "docs" / "reports.md").read_text()
    for name in reports.all_reports():
        assert f"`{name}`" in text
        for section in reports.run(empty, name).sections:
            assert f"`{section.key}`" in text, section.key


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (14, "14.0 s"),
        (60, "1 min"),
        (83.2, "1 min 23 s"),
        (3600, "1 h"),
        (7379, "2 h 2 min"),
        (187200, "2 d 4 h"),
    ],
)
def test_lengths_in_their_two_largest_units(seconds: float, text: str) -> None:
    assert length(seconds) == text


def test_missing_values_are_a_dash() -> None:
    assert {worded(None, "text"), worded("", "name"), worded([], "name"), worded(None, "hours")} == {"–"}


@pytest.mark.long
def test_the_captures_name_their_faults_with_right_counts(captured: Door) -> None:
    found = {(r["cause"], r["host"], r["device"]): r for r in rows(reports.run(captured, "failure-patterns"), "causes")}
    flap = found["nic.link_flap", "gpu02", "eth0"]
    assert (flap["outages"], flap["jobs"], flap["impact"]) == (5, 1, 1)
    assert (found["nic.link_flap", "gpu03", "hsn0"]["outages"], found["nic.link_flap", "gpu03", "hsn0"]["jobs"]) == (
        3,
        0,
    )
    assert (found["nic.link_down", "gpu03", "hsn0"]["outages"], found["nic.link_down", "gpu03", "hsn0"]["jobs"]) == (
        1,
        1,
    )
    assert (found["slurm.slurmd_crash", "gpu03", None]["jobs"], found["node.reboot", "gpu04", None]["jobs"]) == (1, 1)
    assert found["app.oom", None, None]["jobs"] == 1 and found["app.timeout", None, None]["jobs"] == 1
    for cause in ("app.error", "user.cancel"):
        expected = captured.rows("SELECT count(*) AS n FROM model.runs WHERE category = ?", [cause])[0]["n"]
        assert found[cause, None, None]["jobs"] == expected >= 2


@pytest.mark.long
def test_the_captures_count_outages_of_both_ends_alike(captured: Door) -> None:
    found = {(r["host"], r["device"]): r for r in rows(reports.run(captured, "failure-patterns"), "network")}
    for node, switch, outages, seconds in (
        (("gpu02", "eth0"), ("leaf01", "m-gpu02"), 5, 83.0),
        (("gpu03", "hsn0"), ("leaf01", "f-gpu03"), 4, 31.0),
    ):
        for end in (node, switch):
            assert found[end]["outages"] == outages and found[end]["down_s"] == pytest.approx(seconds, abs=0.5)
    assert found["gpu04", "eth0"]["outages"] == 2, "a reboot and a management link lost are two outages"


@pytest.mark.long
def test_the_captures_name_drains_with_their_reasons(captured: Door) -> None:
    document = reports.run(captured, "failure-patterns")
    reported = {(r["host"], r["state"], r["reason"]): r["times"] for r in rows(document, "unavailable")}
    assert reported["gpu03", "drained", "Epilog error"] == 1
    assert reported["gpu03", "drained", "NHC: check_hw_eth hsn0 no carrier"] == 1
    assert reported["gpu04", "down", "Node unexpectedly rebooted"] == 1
    assert [(r["what"], r["name"]) for r in rows(document, "limits")] == [
        ("memory", "memhog"),
        ("time limit", "toolong"),
    ]


def test_a_period_is_reported_beside_the_one_before(empty: Door) -> None:
    runs = [
        a_run(1, "COMPLETED", None, 1100),
        a_run(2, "NODE_FAIL", "infra.network", 1200),
        a_run(3, "FAILED", "unknown", 2100),
    ]
    incidents = [an_incident("I-1", "nic.link_down", "n1", "eth0", 1100, ["2"]), an_incident("I-2", "gpu.xid", "n2", "0", 1200, ["3"]),
                 an_incident("I-3", "gpu.xid", "n2", "0", 2100, ["4"]), an_incident("I-4", "gpu.xid", "n2", "0", 2200, []),
                 an_incident("I-5", "node.panic", "n3", None, 2300, ["5"])]  # fmt: skip
    for incident in incidents:
        incident["severity"] = "impact"
    replace_model(
        empty,
        {
            "runs": pl.DataFrame(runs, infer_schema_length=None),
            "incidents": pl.DataFrame(incidents, infer_schema_length=None),
        },
    )
    document = reports.run(empty, "failure-patterns", since=at(2000), until=at(3000))
    reported = {row["what"]: (row["now"], row["before"], row["change"]) for row in rows(document, "changes")}
    assert reported["Jobs ended"] == ("1", "2", "-1") and reported["Unknown why"] == ("1", "0", "+1")
    assert reported["Cluster at fault"] == ("0", "1", "-1") and reported["Incidents with impact"] == ("3", "2", "+1")
    assert reported["Share that ended badly"] == ("100.0 %", "50.0 %", None)
    found = [(r["change"], r["cause"], r["incidents"], r["incidents_before"]) for r in rows(document, "changes", 1)]
    assert found == [("new", "node.panic", 1, 0), ("more often", "gpu.xid", 2, 1), ("gone", "nic.link_down", 0, 1)]
    section = next(s for s in document.sections if s.key == "changes")
    assert section.notes == (
        "The store begins at " + f"{at(1100):%Y-%m-%d %H:%M}" + ", inside the period before: its numbers are too low.",
    )
    alone = next(s for s in reports.run(empty, "failure-patterns").sections if s.key == "changes")
    assert not alone.tables and "no beginning" in alone.notes[0]
