"""ESC, bidi, NUL, newline, markup and formulas in lines, hosts, job names, users and queries.

Every format that people see is tested.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
from fastapi.testclient import TestClient

from faultline import cli, terminal
from faultline.config import validate
from faultline.notify.alertmanager import alert
from faultline.notify.email import mail
from faultline.notify.message import Message
from faultline.service import Service, build_app
from parsers.logs import one_line
from parsers.record import frame
from queries import kql
from queries.kql.format import render
from store import open_store
from store.door import FileEntry

HOSTILE = "=cmd|' /C calc'!A0 \x1b]0;owned\x07\x1b[2J\x9b31m \u202egnp.exe\u202c \u200b\u2028\u061c <script>alert(1)</script> @channel <https://evil.invalid|log in> [x](http://evil.invalid)"
SUBJECT = "job\r\nBcc: all@site.invalid"
AT = datetime(2026, 11, 21, 0, 30)


def shown_badly(text: str) -> set[str]:
    return {s for s in text if unicodedata.category(s) in ("Cc", "Cf", "Zl", "Zp") and s not in "\n\r\t"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    with open_store(folder) as store:
        line = {
            "time": AT, "time_quality": "line", "received_time": AT, "cluster": "mini", "host": f"gpu{HOSTILE}", "source": "syslog", "unit": HOSTILE,
            "severity": "error", "message": HOSTILE, "event": "other", "raw": HOSTILE, "file": f"/var/log/{HOSTILE}", "line": 1, "tags": [],
        }  # fmt: skip
        job = {"cluster": "mini", "job_id": 15, "name": HOSTILE, "user": HOSTILE, "account": HOSTILE, "partition": HOSTILE, "state": "FAILED", "submit": AT,
               "start": AT, "end": AT.replace(hour=1), "exit_code": 1, "node_list": "gpu01", "file": "x", "line": 1}  # fmt: skip
        entry = FileEntry("/x", "mini", "gpu01", "text", "syslog", "t", 1, "d", 0, 1, 0, ())
        store.add({"logs": frame("logs", [line]), "jobs": frame("jobs", [job])}, [entry])
        from correlator.engine import correlate

        correlate(store)
    return folder


@pytest.fixture  # closes the store again: commands open it
def client(data: Path) -> Iterator[TestClient]:
    with open_store(data) as store:
        yield TestClient(build_app(Service(validate({"data": str(data)}, "test"), store)))


def test_pages_and_reports_show_escapes(client: TestClient) -> None:
    reported = 0
    for address in ("/", "/jobs", "/jobs/15", "/nodes", "/fleet", "/repairs", "/reports", "/search?q=owned", "/sources", "/explore", f"/search?q={'%1b%E2%80%AE'}",
                    "/api/v1/reports/failure-patterns", "/api/v1/reports/usage?format=md", "/jobs/%1b%E2%80%AE"):  # fmt: skip
        page = client.get(address, headers={"accept": "text/html"})
        assert page.status_code in (200, 404, 303), address
        assert shown_badly(page.text) == set(), address
        assert "<script>alert" not in page.text, address
        reported += "\\u202e" in page.text
    assert reported >= 2


def test_names_of_dashboards_panels_and_saved_queries_show_escapes(data: Path, tmp_path: Path) -> None:
    name = HOSTILE.partition(" @channel")[0]  # a title has at most 120 characters
    title = json.dumps(name)  # TOML writes these signs as JSON does
    (tmp_path / "boards").mkdir()
    (tmp_path / "queries").mkdir()
    panel = f"title = {title}\n[[panel]]\ntitle = {title}\nkql = 'Logs | project Host, Message, File'\n"
    (tmp_path / "boards" / "hostile.toml").write_text(panel)
    (tmp_path / "queries" / "hostile.kql").write_text(f"// title: {name}\nLogs | take 1\n", encoding="utf-8")
    settings = {"data": str(data), "dashboards": [str(tmp_path / "boards")], "queries": [str(tmp_path / "queries")]}
    with open_store(data) as store:
        client = TestClient(build_app(Service(validate(settings, "test"), store)))
        for address in ("/dashboards", "/dashboards/hostile", "/dashboards/hostile?tables=yes", "/explore"):
            page = client.get(address, headers={"accept": "text/html"})
            assert page.status_code == 200 and shown_badly(page.text) == set(), address
            assert "<script>alert" not in page.text and "\\u202e" in page.text, address


@pytest.mark.parametrize("text", ["\\r=1+1", "a\\r=1+1", "=1+1", "\\t=1+1"])
def test_no_row_of_a_csv_begins_with_a_formula(data: Path, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A spreadsheet interprets a bare CR as the end of a row; so does universal newline reading."""
    asked = f"print a = \"{text}\", ['=cmd()'] = 1"
    assert cli.run(["query", "--data", str(data), "--format", "csv", asked]) == 0
    output = capfd.readouterr().out
    outside = re.sub(r'"[^"]*"', "", output)
    assert "\r" not in outside
    assert not re.search(r"(?m)(^|,)[=+@\t]", outside)


@pytest.mark.parametrize("form", ["table", "csv"])
def test_commands_print_no_control(data: Path, form: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["query", "--data", str(data), "--format", form, "Logs | project Host, Message, File"]) == 0
    output = capfd.readouterr().out
    assert "owned" in output
    if form == "table":
        assert shown_badly(output) == set() and len(output.splitlines()) == 2
    else:
        (_, row) = csv.reader(io.StringIO(output))
        assert row[1] == f"'{HOSTILE}", "exact but for the formula"


@pytest.mark.parametrize("arguments", [["incidents"], ["why", "15"], ["why", "\x1b[2J\u202e"], ["query", "\x1b[2J\u202e |"], ["report", "failure-patterns", "--format", "md"],
                                       ["\x1b[2J"], ["why", "15", "--data", "/\x1b[2J"]])  # fmt: skip
def test_every_command_prints_no_control(data: Path, arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    more = (
        [] if "--data" in arguments or (len(arguments) == 1 and arguments[0] != "incidents") else ["--data", str(data)]
    )
    cli.run([*arguments, *more])
    output = capfd.readouterr()
    assert shown_badly(output.out + output.err) == set()
    assert output.out + output.err


@pytest.mark.parametrize("form", ["json", "ndjson"])
def test_formats_of_programs_stay_exact(data: Path, form: str, capfd: pytest.CaptureFixture[str]) -> None:
    cli.run(["query", "--data", str(data), "--format", form, "Logs | project Message"])
    found = json.loads(capfd.readouterr().out)
    assert (found["rows"][0][0] if form == "json" else found["Message"]) == HOSTILE


def test_rich_prints_what_it_is_given_as_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    made = terminal.Console(file=out, force_terminal=True, width=200)
    made.print(terminal.Text(HOSTILE, style="bold"))
    assert shown_badly(re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())) == set()


def test_cells_that_a_spreadsheet_runs_are_texts(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        text = "datatable(a:string, n:long)['=1+1', -5, '+x', 1, '-5', 2, '@x', 3, '-5x', 4, 'plain', 5]"
        found = store.run_kql(kql.Query(text))
    rows = list(csv.reader(io.StringIO(str(render(found, "csv")))))
    assert [row[0] for row in rows[1:]] == ["'=1+1", "'+x", "-5", "'@x", "'-5x", "plain"]
    assert rows[1][1] == "-5"


def message(title: str) -> Message:
    document: dict[str, Any] = {
        "confidence": 0.9,
        "category": "x",
        "jobs": [{"job_id": 15, "user": HOSTILE}],
        "advice": [{"text": HOSTILE, "command": SUBJECT}],
    }
    return Message("I-1", "opened", "impact", title, "https://faultline.invalid/incidents/I-1", "mini", document)


@pytest.mark.parametrize("title", [HOSTILE, SUBJECT])
def test_messages_call_nobody_and_inject_nothing(title: str) -> None:
    made = message(title)
    sent = mail(made, "faultline@site.invalid", ["ops@site.invalid"])
    assert sent["Bcc"] is None and "\n" not in str(sent["Subject"]) and shown_badly(str(sent["Subject"])) == set()
    assert shown_badly(made.text) == set() and len(made.text.splitlines()) == 5
    chat = made.as_json()["text"]
    assert "@channel" not in chat and "<http" not in chat and "](http" not in chat
    notes = alert(made)["annotations"]
    assert shown_badly(notes["summary"] + notes["description"]) == set()


def test_a_line_of_the_services_log_is_one_line() -> None:
    entry = one_line(None, "info", {"event": f"a\nfaked {HOSTILE}", "path": SUBJECT})
    output = structlog.dev.ConsoleRenderer(colors=False)(None, "info", dict(entry))
    assert shown_badly(output) == set() and len(output.splitlines()) == 1
