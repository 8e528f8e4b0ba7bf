"""Strangers' text in a browser: control and format characters are shown as escapes.

They could reverse a line, hide in it or steer a terminal it is copied to. It holds wherever scripts put text: results,
charts, lines, the axis, its tooltips, errors and announcements to screen readers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import fixture
import pytest
from around import DAY, insert
from serving import serve
from test_web_browser import until

from parsers.visible import _HIDDEN
from store import open_store

pytestmark = pytest.mark.browser
BAD = "\x1b[31m\u202eevil\u202c\u200b\x9b"
SHOWN = r"\u001b[31m\u202eevil\u202c\u200b\u009b"
HIDDEN = "".join(sign if 32 <= ord(sign) <= 126 else f"\\u{ord(sign):04x}" for sign in _HIDDEN.partition("\ufeff")[0])
#: Everything that a page shows: its text, its titles and labels, and text drawn on canvases.
FOUND = f"""() => {{
  const all = [document.title, document.body.innerText, ...(window.drawn ?? [])];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) if (!walk.currentNode.parentElement.closest('script, textarea')) all.push(walk.currentNode.data);
  for (const e of document.querySelectorAll('[title], [aria-label]')) all.push(e.title, e.getAttribute('aria-label') ?? '');
  return all.filter(words => /[{HIDDEN}]/.test(words));
}}"""
DRAWN = """window.drawn = [];
const fill = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (words, ...rest) { window.drawn.push(words); fill.call(this, words, ...rest); };"""


@pytest.fixture(scope="module")
def bad_site() -> Iterator[str]:
    store = fixture.build()
    at = datetime.fromisoformat(DAY + "00:10:00")
    host = f"gpu04{BAD}"
    line = {
        "time": at, "time_quality": "line", "received_time": at, "resolution_us": 1000, "cluster": "mini", "host": host,
        "source": "syslog", "severity": "error", "message": BAD, "event": "nic.error", "raw": BAD, "file": f"hosts/{BAD}/syslog", "line": 1,
    }  # fmt: skip
    insert(store.con, "raw.logs", line)
    insert(store.con, "raw.logs", {**line, "line": 2, "raw": f"second {BAD}", "message": f"second {BAD}"})
    event = {
        "id": "x9", "time": f"{at.isoformat()}Z", "host": host, "event": f"nic.error{BAD}", "message": BAD, "layer": "link",
        "device": f"eth0{BAD}", "severity": "error", "role": "cause", "source": f"hosts/{BAD}/syslog", "line": 1,
    }  # fmt: skip
    document = {"title": BAD, "events": [event], "status": "final", "hosts": [host], "doubts": [BAD], "confidence": 0.5, "jobs": [],
                "advice": [{"text": BAD, "command": BAD}]}  # fmt: skip
    insert(store.con, "model.incidents", {
        "incident_id": "I9", "cluster": "mini", "start": at, "end": at + timedelta(seconds=3), "severity": "benign",
        "category": "infra.network", "root_event": "nic.error", "root_host": host, "root_device": f"eth0{BAD}",
        "document": json.dumps(document),
    })  # fmt: skip
    yield from serve(store)


def test_results_charts_and_errors(look: Any, bad_site: str) -> None:
    eyes = look(at=bad_site)
    eyes.page.add_init_script(DRAWN)
    eyes.answer_queries({
        "columns": [{"name": f"Time{BAD}", "type": "datetime"}, {"name": "Host", "type": "string"}, {"name": f"n{BAD}", "type": "long"}],
        "rows": [[f"2026-11-21T00:3{n}:52Z", f"{host}{BAD}", n] for n, host in enumerate("aab")], "truncated": False, "elapsed_ms": 4,
        "render": {"visualization": "timechart", "x": f"Time{BAD}", "y": [f"n{BAD}"], "series": ["Host"], "title": BAD, "xtitle": BAD, "ytitle": BAD},
    })  # fmt: skip
    page = eyes.open("/explore")
    page.wait_for_selector("#result tbody tr")
    assert SHOWN in page.inner_text("#result") and SHOWN in page.inner_text(".legend")
    until(page, f"window.drawn.some(words => words.includes({json.dumps(SHOWN[:6])}))")
    assert page.evaluate(FOUND) == []
    eyes.page.unroute("**/api/v1/query")
    eyes.answer_queries(
        {"detail": BAD, "message": f"no column {BAD}", "line": 1, "column": 1, "suggestion": BAD}, status=400
    )
    page.focus("#q")
    page.keyboard.press("Control+Enter")
    until(page, "document.getElementById('fault').innerText.includes('no column')")
    assert SHOWN in page.inner_text("#fault")
    assert page.evaluate(FOUND) == []
    eyes.faults.clear()  # the browser's own message about the 400


def test_the_axis_its_tooltip_and_the_lines_below(look: Any, bad_site: str) -> None:
    eyes = look(at=bad_site)
    eyes.page.add_init_script(DRAWN)
    page = eyes.open("/incidents/I9", axis=True)
    page.wait_for_selector("#lines .ln.hot")
    assert SHOWN in page.inner_text("#lines")
    assert any(SHOWN[:6] in words for words in page.evaluate("window.drawn"))
    page.keyboard.press("e")
    place = page.evaluate(
        "(() => { const a = document.getElementById('axis').axis, m = a.data.marks[0]; return a.scale.x(m.t); })()"
    )
    box = page.locator("#axis canvas").bounding_box()
    for y in range(40, int(box["height"]), 6):
        page.mouse.move(box["x"] + place, box["y"] + y)
        if SHOWN in page.evaluate("document.getElementById('axis').axis.tip.innerText"):
            break
    else:
        raise AssertionError("no tooltip names the event")
    assert SHOWN in page.evaluate("document.getElementById('status').textContent"), "said to screen readers"
    assert page.evaluate(FOUND) == []
    page.locator("#lines .file").first.click()
    page.wait_for_selector("#lines .ctx .me")
    assert page.evaluate(FOUND) == []


@pytest.mark.parametrize("path", ["/", "/nodes", "/sources", "/incidents/I9?theme=light"])
def test_pages_as_the_server_writes_them(look: Any, bad_site: str, path: str) -> None:
    page = look(at=bad_site).open(path)
    assert page.evaluate(FOUND) == []


#: Markup, quotes and a template beside the signs above: nothing of it may run or become an element.
WORSE = f"{BAD}<img src=x onerror=alert(1)>\"'><script>alert(2)</script>{{{{31337*7}}}}"
NODE = f"n{BAD}<img src=x onerror=alert(1)>"
DASHBOARD = f"""title = {json.dumps(WORSE)}
description = {json.dumps(WORSE)}
[[panel]]
title = {json.dumps(WORSE)}
kql = "Jobs | project JobId, Name, User, Account, NodeList"
[[panel]]
title = {json.dumps(WORSE)}
kql = "Jobs | summarize n = count() by Name"
chart = "barchart"
"""


@pytest.fixture(scope="module")
def strange_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A job, its user, its node, a saved query and a dashboard with such names."""
    folder = tmp_path_factory.mktemp("strange")
    (folder / "strange.toml").write_text(DASHBOARD, encoding="utf-8")
    (folder / "strange.kql").write_text(
        f"// title: {WORSE}\n// description: {WORSE}\nJobs | take 7\n", encoding="utf-8"
    )
    end = datetime.fromisoformat(DAY + "00:10:00")
    named = {"name": WORSE, "user": f"eve{WORSE}", "account": WORSE, "partition": WORSE, "work_dir": f"/home/{WORSE}"}
    run = {"run_key": "90", "cluster": "mini", "job_id": 90, "attempt": 0, "state": "FAILED", "nodes": [NODE], "node_list": NODE,
           "submit": end - timedelta(seconds=70), "start": end - timedelta(seconds=60), "end": end, "incident_id": "I-90",
           "category": "infra.network", "confidence": 0.9}  # fmt: skip
    event = {"id": "x", "time": f"{end.isoformat()}Z", "host": NODE, "event": "nic.link_down", "layer": "link", "device": WORSE, "role": "cause",
             "message": WORSE, "source": "a/syslog", "line": 1}  # fmt: skip
    job = {"job_id": "90", "confidence": 0.9, "state": "FAILED", "name": WORSE, "user": f"eve{WORSE}", "gpus": 1}
    document = {"title": WORSE, "events": [event], "hosts": [event["host"]], "jobs": [job], "advice": [{"text": WORSE, "command": WORSE}],
                "confidence": 0.9, "status": "final", "gpu_hours_lost": 1.0, "headline": WORSE, "summary": WORSE, "evidence": [event]}  # fmt: skip
    with open_store(None) as store:
        with store.transaction() as connection:
            insert(connection, "model.runs", {**run, **named, "document": json.dumps(document)})
            insert(
                connection,
                "model.node_states",
                {"cluster": "mini", "time": end, "host": NODE, "state": "DOWN", "reason": WORSE, "actor": WORSE},
            )
            insert(connection, "model.incidents", {
                "incident_id": "I-90", "cluster": "mini", "start": end, "end": end, "severity": "impact", "category": "infra.network",
                "root_event": "nic.link_down", "root_host": NODE, "root_device": WORSE, "document": json.dumps(document),
            })  # fmt: skip
        yield from serve(store, dashboards=[str(folder)], queries=[str(folder)])


STRANGE = ("/", "/incidents/I-90", "/jobs", "/jobs/90", "/nodes", f"/nodes/{quote(NODE, safe='')}", "/fleet", "/search?q=evil",
           "/explore", "/dashboards", "/dashboards/strange", "/dashboards/strange?tables=yes")  # fmt: skip


@pytest.mark.long
def test_names_of_jobs_users_nodes_queries_and_dashboards(look: Any, strange_site: str) -> None:
    eyes = look(at=strange_site)
    eyes.page.add_init_script(DRAWN)
    for path in STRANGE:
        page = eyes.open(path, axis=path == "/incidents/I-90")
        shown = page.text_content("body")
        assert "evil" in shown or path == "/fleet", path  # the map names nodes where the pointer is
        assert "219359" not in shown, path  # long enough that no address or time has it
        assert page.evaluate(FOUND) == [], path
        assert page.evaluate("document.querySelectorAll('img[src=x], [onerror]').length") == 0, path
        assert "dialog" not in str(eyes.faults), path
    page = eyes.open("/explore")
    page.locator("details:has-text('evil') summary").first.click()
    page.locator("a:has-text('evil')").first.click()
    until(page, "document.querySelector('#result tbody tr')")
    assert SHOWN in page.inner_text("#result") and page.evaluate(FOUND) == []
