"""Dashboards: each panel is asked on its own and shows what its query answers; a mistake is shown at its panel."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from fastapi.testclient import TestClient

from collector.ingest import Ingest
from correlator.engine import correlate
from store import open_store
from tests.line_parser import line_parser
from web.app import create_app

CAPTURE = Path(__file__).parents[2] / "faultline" / "capture" / "mgmt_flap_long"
HTML = {"accept": "text/html"}
NIGHT = {"from": "2026-11-21T00:00:00Z", "to": "2026-11-21T02:00:00Z"}
OURS = """title = "Ours <img src=x>"
refresh = "1h"
[[panel]]
title = "Lines <script>alert(1)</script>"
kql = "Logs | summarize Lines = count() by Source | sort by Lines desc, Source asc"
width = 6
[[panel]]
title = "Drawn"
width = 6
kql = "Logs | summarize Lines = count() by Source | sort by Lines desc, Source asc"
chart = "barchart"
[[panel]]
title = "Column"
kql = '''
Logs
| where Hots == 1
'''
[[panel]]
title = "Key"
kql = "Logs"
wdth = 3
[[panel]]
saved = "node_states_now"
range = "until"
[[panel]]
saved = "failed_jobs_by_node"
"""


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("dashboards")
    (folder / "ours.toml").write_text(OURS, encoding="utf-8")
    (folder / "broken.toml").write_text("title = \n")
    with open_store(None) as store:
        Ingest(store, parser=line_parser()).run([CAPTURE])
        correlate(store)
        yield TestClient(create_app(store, settings={"dashboards": [folder]}), raise_server_exceptions=False)


def panels(text: str) -> list[dict[str, str]]:
    """What the page gives its script of each panel."""
    found = re.findall(r'data-query="(.*?)" data-chart="(.*?)"\s+data-from="(.*?)" data-to="(.*?)"', text, re.S)
    return [dict(zip(("query", "chart", "from", "to"), map(html.unescape, one), strict=True)) for one in found]


def test_the_list_names_all_with_what_is_wrong(night: TestClient) -> None:
    text = night.get("/dashboards", headers=HTML).text
    assert re.findall(r'href="/dashboards/([\w-]+)"', text) == [
        "cluster-now",
        "gpu-health",
        "network",
        "broken",
        "ours",
    ]
    assert "ours.toml:18: panel 4 (Key): wdth: there is no such key" in text and "broken.toml:1: is no TOML" in text
    assert "Ours &lt;img" in text and "<img" not in text


def test_a_page_gives_each_panel_its_query_and_the_range(night: TestClient) -> None:
    text = night.get("/dashboards/ours", params=NIGHT, headers=HTML).text
    lines, drawn, column, states, failed = panels(text)
    assert (lines["from"], lines["to"]) == (NIGHT["from"], NIGHT["to"])
    assert (states["from"], states["to"]) == ("", NIGHT["to"]) and drawn["query"].endswith("| render barchart")
    # A saved query looks back to the start of the range at least: the range itself limits it.
    assert re.search(r"since:timespan = \d{5,}s", failed["query"]) and "Hots" in column["query"]
    assert "panel 4 (Key): wdth: there is no such key" in html.unescape(text)
    assert "<script>alert" not in text and "<img" not in text
    (explore, *_) = re.findall(r'href="(/explore\?[^"]*q=Logs\+%7C\+summarize.*?)"', text)
    asked = parse_qs(urlsplit(html.unescape(explore)).query)
    assert asked == {"q": [lines["query"]], "from": [NIGHT["from"]], "to": [NIGHT["to"]]}


def test_without_a_range_the_dashboard_has_its_own(night: TestClient) -> None:
    assert {one["from"] for one in panels(night.get("/dashboards/network", headers=HTML).text)} == {"now-24h"}
    everything = panels(night.get("/dashboards/network?from=&to=", headers=HTML).text)
    assert {one["from"] for one in everything} == {""} and any(
        "since:timespan = 36500d" in one["query"] for one in everything
    )


def test_a_range_after_the_newest_event_says_so(night: TestClient) -> None:
    later = html.unescape(night.get("/dashboards/network?from=2026-11-22", headers=HTML).text)
    (shown,) = re.findall(r'href="(\S+)">Show the day before it', later)
    assert night.get(shown, headers=HTML).status_code == 200 and parse_qs(urlsplit(shown).query)["to"][0] > "2026-11-21"
    assert "newest event" not in night.get("/dashboards/network", params=NIGHT, headers=HTML).text


def test_without_scripts_the_rows_are_those_of_the_query_api(night: TestClient) -> None:
    page = night.get("/dashboards/ours", params=NIGHT, headers=HTML).text
    (onward,) = re.findall(r'http-equiv="refresh" content="0;url=(.*?)"', page)
    text = night.get(html.unescape(onward), headers=HTML).text
    assert "http-equiv" not in text and "dashboard.js" not in text
    (first, *_) = panels(page)
    asked = {name: first[name] for name in ("query", "from", "to")}
    rows = night.post("/api/v1/query", json=asked).json()["rows"]
    shown = [re.findall(r"<td.*?>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", text, re.S)]
    assert rows and [[source, str(lines)] for source, lines in rows] == [row for row in shown if row][: len(rows)]
    assert "Line 2: unknown name &#39;Hots&#39;" in text
    assert "panel 4 (Key)" in text


def test_an_unknown_one_is_not_found_and_a_broken_one_says_why(night: TestClient) -> None:
    gone = night.get("/dashboards/netwrk", headers=HTML)
    assert gone.status_code == 404 and "/dashboards/network" in gone.text
    assert night.get("/dashboards/..%2fapp", headers=HTML).status_code == 404
    broken = night.get("/dashboards/broken", headers=HTML)
    assert broken.status_code == 200 and "broken.toml:1: is no TOML" in broken.text
    assert night.get("/dashboards/ours?from=yesterday", headers=HTML).status_code == 400


def test_the_api_limits_a_query_to_a_range(night: TestClient) -> None:
    def count(**more: Any) -> Any:
        return night.post("/api/v1/query", json={"query": "Logs | count", **more})

    assert 0 < count(**NIGHT).json()["rows"][0][0] <= count().json()["rows"][0][0]
    assert count(to="2026-11-20").json()["rows"] == [[0]]
    assert count(**{"from": "yesterday"}).status_code == 400
    assert count(**{"from": "2026-11-22", "to": "2026-11-21"}).status_code == 400


ROWS = {
    "columns": [{"name": "Host", "type": "string"}, {"name": "N", "type": "long"}],
    "truncated": False,
    "elapsed_ms": 1,
}


@pytest.mark.browser
@pytest.mark.parametrize("width", [1440, 390])
def test_a_panel_that_fails_or_hangs_stops_no_other(look: Any, width: int) -> None:
    eyes = look(width)
    held: list[Any] = []

    def answer(route: Any) -> None:
        asked = json.loads(route.request.post_data)
        if "Severity in" in asked["query"]:
            held.append(route)  # never answered
        elif "Ended = bin" in asked["query"]:
            error = {"detail": "no column", "message": "no column Hots", "line": 2, "column": 3, "suggestion": "Host"}
            route.fulfill(status=400, content_type="application/problem+json", body=json.dumps(error))
        else:
            kind = re.search(r"\| render (\w+)", asked["query"])
            drawn = {"render": {"visualization": kind[1], "x": "Host", "y": ["N"], "series": []}} if kind else {}
            body = {**ROWS, "rows": [["gpu01", 3], ["<b>gpu02", 7]], **drawn}
            route.fulfill(content_type="application/json", body=json.dumps(body))

    eyes.page.route("**/api/v1/query", answer)
    page = eyes.page
    page.goto(f"{eyes.site}/dashboards/cluster-now?from={quote(NIGHT['from'])}", wait_until="load")
    page.wait_for_selector(".board .panel:nth-child(8)[aria-labelledby] .count:not(:empty), #p8 .count:not(:empty)")
    assert page.inner_text("#p5 .fault") == "Line 2, column 3: no column Hots\n\nDid you mean Host?"
    assert page.locator("#p4 tbody tr").all_inner_texts() == ["gpu01\t3", "<b>gpu02\t7"]
    assert page.locator("#p6 .bars li").count() == 2 and page.inner_text("#p6 .amount >> nth=1") == "7"
    assert page.inner_text("#p7 .count") == "2 rows" and len(held) == 1
    page.wait_for_selector(
        "#late:not([hidden])", state="attached"
    )  # a long range and this chip: the bar is as full as it gets
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.locator("#p6 summary").press("Enter")
    assert page.locator("#p6 tbody tr").count() == 2
    eyes.faults.clear()  # the browser's own message about the 400


@pytest.mark.browser
def test_panels_are_asked_again_and_keep_their_place(look: Any) -> None:
    eyes = look()
    asked: list[str] = []

    def answer(route: Any) -> None:
        asked.append(json.loads(route.request.post_data)["query"])
        route.fulfill(content_type="application/json", body=json.dumps({**ROWS, "rows": [["gpu01", len(asked)]]}))

    eyes.page.route("**/api/v1/query", answer)
    page = eyes.open("/dashboards/network")
    page.wait_for_selector("#main[data-ready]")
    first = len(asked)
    assert first == page.locator("[data-query]").count() and "every 60 s" in page.inner_text("#asked")
    with page.expect_response(lambda _: len(asked) == 2 * first):
        page.click("#again")
    assert sorted(asked[:first]) == sorted(asked[first:])
