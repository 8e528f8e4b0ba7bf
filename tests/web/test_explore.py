"""The query page beside its answer: counts that are true, filters and ranges that are in the text and the address."""

from __future__ import annotations

import hashlib
import html
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pyarrow.parquet
import pytest
from fastapi.testclient import TestClient

from collector.ingest import Ingest
from correlator.engine import correlate
from queries import overview, saved
from queries.kql import CATALOG, validate
from store import open_store
from tests.line_parser import line_parser
from web.app import create_app
from web.pages import HERE

CAPTURE = Path(__file__).parents[2] / "faultline" / "capture" / "mgmt_flap_long"
HTML = {"accept": "text/html"}
#: CodeMirror ignores keys for a list's first 75 ms, so that nobody chooses what they have not seen.
CHOICE_MS = 100
FAULT = {"from": "2026-11-21T00:30:00Z", "to": "2026-11-21T00:31:00Z"}


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("queries")
    (folder / "ours.kql").write_text("// title: Ours <b>\n// description: Of this site.\nLogs\n| take 7\n")
    with open_store(None) as store:
        Ingest(store, parser=line_parser()).run([CAPTURE])
        correlate(store)
        yield TestClient(create_app(store, settings={"queries": [folder]}), raise_server_exceptions=False)


def rows(client: TestClient, query: str, **more: Any) -> list[list[Any]]:
    found: list[list[Any]] = client.post("/api/v1/query", json={"query": query, **more}).json()["rows"]
    return found


def counts(client: TestClient, query: str, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = client.post("/api/v1/query/overview", json={"query": query, **more}).json()
    return found


@pytest.mark.parametrize("within", [{}, FAULT])
def test_counts_are_of_all_rows_that_the_filters_leave(night: TestClient, within: dict[str, str]) -> None:
    asked = 'Logs\n| where Host startswith "gpu"\n| sort by Time desc\n| take 3\n| project Time, Host'
    found = counts(night, asked, **within)
    assert found["before"] == "take" and asked[found["at"] :].startswith("\n| take 3")
    kept = 'Logs | where Host startswith "gpu"'
    assert [[found["rows"]]] == rows(night, f"{kept} | count", **within) and found["rows"] > 3
    assert sum(n for _, n in found["bins"]) + found["undated"] == found["rows"]
    assert found["bins"] == rows(
        night, f"{kept} and isnotnull(Time) | summarize N = count() by T = bin(Time, {found['step_s']}s) | sort by T asc", **within
    )  # fmt: skip
    assert [one["column"] for one in found["facets"]] == ["Host", "Source", "Severity", "Event", "Unit"]
    for one in found["facets"]:
        name = one["column"]
        true = rows(night, f"{kept} | summarize N = count() by {name} | sort by N desc, {name} asc", **within)
        assert one["values"] == true[: overview.MOST_VALUES] and one["more"] == (len(true) > overview.MOST_VALUES)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Logs", "Logs"),
        ("Logs // all\n| where a | summarize count() by Host", "Logs // all\n| where a"),
        ("let h = 'a|b';\nEvents | where Host == h;\n", "let h = 'a|b';\nEvents | where Host == h"),
        ("union Logs, Events", None),
        ("print 1", None),
        ("Logs |", None),
        ("let f = () { Logs };", None),
    ],
)
def test_what_is_counted_of_a_query(text: str, kept: str | None) -> None:
    base = overview.readable(text)
    assert (base.text if base else None) == kept and (base is None or text[: base.end] == kept)


def test_a_query_without_rows_or_with_an_error_has_no_counts(night: TestClient) -> None:
    assert counts(night, "Logs | where Hots == 1") == counts(night, "print 1") == {}
    none = counts(night, "Logs | where Host == 'nobody'")
    assert (none["rows"], none["bins"], none["facets"]) == (0, [], [])
    assert counts(night, "Links | take 1")["bins"] == []


def test_messages_are_counted_by_what_they_share(night: TestClient) -> None:
    asked = counts(night, "Logs | where Source == 'slurmctld' | take 3", **FAULT)["patterns"]
    found = rows(night, asked, **FAULT)
    true = rows(night, "Logs | where Source == 'slurmctld' | project Message", **FAULT)
    shapes = Counter(re.sub("0x[0-9a-fA-F]+|[0-9]+", "#", message) for (message,) in true)
    assert {pattern: lines for pattern, lines, _, _ in found} == shapes and max(shapes.values()) > 1
    assert counts(night, "Links")["patterns"] is None


@pytest.mark.parametrize(("rows", "truncated"), [(100_000, False), (100_001, True)])
def test_a_hundred_thousand_rows_come_whole_and_one_more_is_said_to_be_missing(
    night: TestClient, rows: int, truncated: bool
) -> None:
    asked = {"query": f"range N from 1 to {rows} step 1", "max_rows": 100_000}
    body = night.post("/api/v1/query", json=asked).json()
    assert (len(body["rows"]), body["truncated"], "truncated_by" in body) == (100_000, truncated, False)


@pytest.mark.parametrize("form", ["csv", "ndjson", "parquet"])
def test_rows_are_saved_as_a_file(night: TestClient, form: str) -> None:
    asked = {"query": "Logs | sort by Time asc | project Time, Host | take 5", **FAULT}
    answer = night.post("/api/v1/query", json={**asked, "format": form})
    assert f'filename="faultline.{form}"' in answer.headers["content-disposition"]
    true = rows(night, str(asked["query"]), **FAULT)
    if form == "parquet":
        table = pyarrow.parquet.read_table(io.BytesIO(answer.content))
        assert table.column_names == ["Time", "Host"] and table["Host"].to_pylist() == [host for _, host in true]
    elif form == "csv":
        assert answer.text.splitlines() == ["Time,Host", *(",".join(row) for row in true)]
    else:
        assert [list(json.loads(line).values()) for line in answer.text.splitlines()] == true
    assert night.post("/api/v1/query", json={**asked, "format": "xlsx"}).status_code == 422


def test_an_answer_in_a_range_says_which_it_was(night: TestClient) -> None:
    answer = night.post("/api/v1/query", json={"query": "print 1", "from": "now-6h"}).json()
    assert re.match(r"\d{4}-\d\d-\d\dT", answer["range"]["from"]) and answer["range"]["from"] < answer["range"]["to"]
    assert "range" not in night.post("/api/v1/query", json={"query": "print 1"}).json()


def test_all_saved_queries_and_the_sites_own_are_offered_in_groups(night: TestClient) -> None:
    text = night.get("/explore", headers=HTML).text
    offered = re.findall(r'href="/explore\?saved=(\w+)"', text)
    assert sorted(offered) == sorted([*saved.names(), "ours"]) and offered[0] == "ours"
    assert "Ours &lt;b&gt;" in text and "Of this site." in text and "Network" in text
    shown = html.unescape(night.get("/explore?saved=xid_by_node", headers=HTML).text)
    assert "since:timespan = 7d" in shown and "// example" not in shown and "// description" in shown
    # In a range it reaches back to its start: the range is the limit.
    assert re.search(
        r"since:timespan = \d{6,}s", night.get("/explore?saved=xid_by_node&from=2026-01-01", headers=HTML).text
    )
    gone = night.get("/explore?saved=xid_by_nod", headers=HTML)
    assert gone.status_code == 404 and "Did you mean xid_by_node?" in gone.text


LINES = {
    "columns": [{"name": "Time", "type": "datetime"}, {"name": "Host", "type": "string"}],
    "truncated": False,
    "elapsed_ms": 1,
}
COUNTS = {
    "rows": 7, "at": 4, "before": "take", "time": "Time", "step_s": 60, "undated": 1,
    "bins": [["2026-11-21T00:30:00Z", 4], ["2026-11-21T00:35:00Z", 2]],
    "patterns": "Logs\n| summarize Lines = count()",
    "facets": [{"column": "Host", "values": [["gpu01", 5], ['a"b', 1], ["", 1]], "more": True}],
}  # fmt: skip
QUERY = "Logs\n| take 2"


def explore(look: Any, more: str = "", **answer: Any) -> tuple[Any, Any, list[dict[str, Any]]]:
    """The page with an answer and its counts, and what was asked."""
    eyes = look()
    asked: list[dict[str, Any]] = []
    eyes.answer_queries({**LINES, "rows": [["2026-11-21T00:30:00Z", "gpu01"]], **answer}, counts=COUNTS)
    eyes.page.on(
        "request", lambda sent: asked.append(json.loads(sent.post_data)) if sent.url.endswith("/api/v1/query") else None
    )
    page = eyes.open(f"/explore?q={quote(QUERY)}{more}")
    page.wait_for_selector("#over:not([hidden])")
    return eyes, page, asked


@pytest.mark.browser
def test_a_column_is_filtered_by_in_the_text_of_the_query(look: Any) -> None:
    _, page, asked = explore(look)
    assert "7 rows before take" in page.inner_text("#over") and "1 without a time" in page.inner_text("#over")
    listed = [text.split("\n")[:2] for text in page.locator("#facets li").all_inner_texts()]
    assert listed == [["gpu01", "5"], ['a"b', "1"], ["(empty)", "1"], ["and more"]]
    for button, text in (
        ("#facets .value >> nth=0", 'Logs\n| where Host == "gpu01"\n| take 2'),
        ("#facets .drop >> nth=1", 'Logs\n| where Host != "a\\"b"\n| where Host == "gpu01"\n| take 2'),
        (
            "#facets .value >> nth=2",
            'Logs\n| where isempty(Host)\n| where Host != "a\\"b"\n| where Host == "gpu01"\n| take 2',
        ),
    ):
        with page.expect_response("**/api/v1/query/overview"):
            page.click(button)
        assert asked[-1]["query"] == text and parse_qs(urlsplit(page.url).query)["q"] == [text]


@pytest.mark.browser
def test_a_stretch_of_the_histogram_is_the_range_of_the_next_page(look: Any) -> None:
    _, page, asked = explore(look, "&zone=UTC")
    assert (asked[0]["from"], asked[0]["to"]) == (None, None)
    box = page.locator("#hist").bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 40)
    assert "2026-11-21 00:30:00, 1 min: 4 rows" in page.inner_text("#over figcaption")
    page.mouse.down()
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 40)
    with page.expect_navigation():
        page.mouse.up()
    given = parse_qs(urlsplit(page.url).query)
    assert given == {
        "q": [QUERY],
        "zone": ["UTC"],
        "from": ["2026-11-21T00:30:00.000Z"],
        "to": ["2026-11-21T00:31:59.999Z"],
    }
    page.wait_for_selector("#over:not([hidden])")
    assert asked[-1]["from"] == "2026-11-21T00:30:00.000Z" and "00:30:00" in page.inner_text(".range summary")
    page.go_back()
    page.wait_for_selector("#over:not([hidden])")
    assert "from=" not in page.url and "/explore" in page.url


@pytest.mark.browser
def test_back_leads_to_the_query_before_and_stays_in_explore(look: Any) -> None:
    _, page, asked = explore(look)
    for text in ("Jobs\n| take 1", "Events\n| take 1"):
        page.fill("#q", text)
        with page.expect_response("**/api/v1/query/overview"):
            page.click("#run")
    for text in ("Jobs\n| take 1", QUERY):
        with page.expect_response("**/api/v1/query/overview"):
            page.go_back()
        assert asked[-1]["query"] == text and page.locator("#ed .cm-line").all_inner_texts() == text.split("\n")
        assert "/explore" in page.url


@pytest.mark.browser
def test_a_copied_link_gives_the_same_answer_again(look: Any) -> None:
    within = {"from": "2026-11-21T00:00:00Z", "to": "2026-11-21T06:00:00Z"}
    _, page, asked = explore(look, "&from=now-6h&zone=Asia/Kolkata", range=within)
    assert asked[0]["from"] == "now-6h"
    assert page.inner_text("#result tbody") == "2026-11-21 06:00:00\tgpu01" and "UTC+05:30" in page.inner_text(
        "#result thead"
    )
    page.evaluate("navigator.clipboard.writeText = words => { window.copied = words; return Promise.resolve(); }")
    page.click("#link")
    given = parse_qs(urlsplit(page.evaluate("window.copied")).query)
    assert given == {"q": [QUERY], "zone": ["Asia/Kolkata"], **{name: [time] for name, time in within.items()}}


@pytest.mark.browser
@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_very_many_lines_are_few_nodes_and_each_can_be_reached(look: Any, count: int) -> None:
    more, words = (11, 40) if count <= 10_000 else (2, 8)  # the answer itself has to pass through the test
    names = ["Time", "Host", "Message", "File", "Line", *(f"C{n}" for n in range(more))]
    kinds = {"Time": "datetime", "Line": "long"}
    columns = [{"name": name, "type": kinds.get(name, "string")} for name in names]
    many = [
        ["2026-11-21T00:30:00Z", f"gpu{n}", "a long line " * (n % words), "a/log", n + 1, *["x"] * more]
        for n in range(count)
    ]
    many[-1][2] = "the last \u202eone"
    _, page, _ = explore(look, columns=columns, rows=many)
    nodes = """() => {
      const walk = document.createTreeWalker(document, NodeFilter.SHOW_ALL);
      let count = 1;
      while (walk.nextNode()) count += 1;
      return count;
    }"""
    assert page.evaluate(nodes) < 2000 and page.inner_text("#count") == f"{count:,} rows"
    page.locator("#rows").scroll_into_view_if_needed()
    for share in (0.5, 0.123, 1):
        page.evaluate(
            "share => { const r = document.getElementById('rows'); r.scrollTop = share * r.scrollHeight; }", share
        )
        page.wait_for_function(
            """([share, count]) => {
              const rows = [...document.querySelectorAll('#result tbody tr:not(.gap)')].map(r => Number(r.ariaRowIndex));
              const box = document.getElementById('rows').getBoundingClientRect();
              const seen = document.elementFromPoint(box.x + 40, box.y + 120)?.closest('tr:not(.gap)');
              return seen && Math.abs(rows[rows.length >> 1] / count - share) < 0.1;
            }""",
            arg=[share, count],
        )
        assert page.evaluate(nodes) < 2000
    page.evaluate("document.getElementById('rows').scrollTop = 1e9")
    last = f"#result tr[aria-rowindex='{count + 1}']"
    page.wait_for_selector(last)
    assert "the last \\u202eone" in page.inner_text(last)
    page.locator("#result th button", has_text="Host").press("Enter")
    assert page.inner_text("#result tbody tr:not(.gap) >> nth=0").split("\t")[1] == "gpu0"


@pytest.mark.browser
def test_more_rows_of_a_truncated_answer_are_asked_for_on_request(look: Any) -> None:
    _, page, asked = explore(look, truncated=True)
    assert page.inner_text("#more") == "Up to 100,000 rows" and "max_rows" not in asked[-1]
    with page.expect_response("**/api/v1/query"):
        page.click("#more")
    assert asked[-1]["max_rows"] == 100_000 and asked[-1]["query"] == QUERY


@pytest.mark.browser
def test_patterns_are_a_query_like_any_other(look: Any) -> None:
    _, page, asked = explore(look)
    with page.expect_response("**/api/v1/query/overview"):
        page.click("#patterns")
    assert asked[-1]["query"] == COUNTS["patterns"] == parse_qs(urlsplit(page.url).query)["q"][0]


@pytest.mark.browser
def test_saved_queries_are_found_by_words(look: Any) -> None:
    _, page, _ = explore(look)
    page.fill("#find", "node xid")
    shown = page.locator("#saved li:visible a").all_inner_texts()
    assert sorted(text.split("\n")[0].strip() for text in shown) == ["Xid codes", "Xid errors by node"]
    page.fill("#find", "")
    assert page.locator("#saved li:visible").count() > 60


SCHEMA = {
    "tables": [{"name": "Logs", "doc": "Log lines.", "columns": [{"name": "Host", "type": "string"}, {"name": "Hour", "type": "long"}]}],
    "operators": [{"name": "summarize", "doc": "Groups of rows."}, {"name": "where", "doc": "Some rows."}],
    "functions": [{"name": "hourofday", "doc": "The hour <b>of</b> a time.", "kind": "scalar"}],
}  # fmt: skip


@pytest.mark.browser
def test_words_are_completed_from_the_schema_and_explained(look: Any) -> None:
    eyes = look()
    eyes.answer_queries({**LINES, "rows": []}, counts=COUNTS)
    eyes.page.route(
        "**/api/v1/schema", lambda route: route.fulfill(content_type="application/json", body=json.dumps(SCHEMA))
    )
    page = eyes.open(f"/explore?q={quote('// Logs')}")
    offered = page.locator("#ed .cm-tooltip-autocomplete li")

    def typed(text: str) -> list[str]:
        page.keyboard.type(text)
        offered.first.wait_for()
        page.wait_for_timeout(CHOICE_MS)
        return [option.split("\n")[0] for option in offered.all_inner_texts()]

    page.fill("#q", "")
    assert typed("L") == ["Logs"]
    page.keyboard.press("Enter")
    assert typed(" | w") == ["where"]
    page.keyboard.press("Enter")
    assert sorted(typed(" Ho")) == ["Hostring", "Hourlong", "hourofday"] or sorted(
        re.sub("(string|long)$", "", one) for one in typed("")
    ) == ["Host", "Hour", "hourofday"]
    page.keyboard.press("Escape")
    page.keyboard.type('st == "x')
    offered.first.wait_for(state="detached")  # nothing is offered inside a text
    assert page.locator("#ed .cm-line").all_inner_texts() == ['Logs | where Host == "x"']
    page.fill("#q", "print hourofday(now())")
    page.locator("#ed .cm-line span", has_text="hourofday").hover()
    page.wait_for_selector("#ed .said")
    assert page.inner_text("#ed .said").split("\n") == ["hourofday function", "The hour <b>of</b> a time."]


def test_without_scripts_the_query_is_in_a_textarea(night: TestClient) -> None:
    text = night.get("/explore", params={"q": "Logs\n| take 1"}, headers=HTML).text
    assert re.search(r'<textarea id="text" aria-label="KQL query".*?>Logs\n\| take 1</textarea>', text, re.S)


def test_the_schema_is_that_of_the_language(night: TestClient) -> None:
    found = night.get("/api/v1/schema").json()
    assert {table["name"] for table in found["tables"]} == set(CATALOG.tables)
    columns = next(table["columns"] for table in found["tables"] if table["name"] == "Links")
    assert [column["name"] for column in columns] == [name for name, _ in validate("Links")]
    doc = {one["name"]: one["doc"] for one in [*found["operators"], *found["functions"]]}
    assert {"where", "summarize", "during_job", "ago", "count", "expand_nodes"} <= set(doc)
    assert not [name for name, text in doc.items() if re.search(r"\bR\d+", text)] and doc["ago"]


def test_the_vendored_editor_is_the_file_that_its_page_names() -> None:
    folder = HERE / "static" / "vendor" / "codemirror"
    digest = hashlib.sha256((folder / "codemirror.js").read_bytes()).hexdigest()
    assert (
        f"{digest}  codemirror.js" in (folder / "README.md").read_text() and "MIT" in (folder / "LICENSE").read_text()
    )
    packages = json.loads((folder / "package.json").read_text())["dependencies"]
    locked = json.loads((folder / "package-lock.json").read_text())["packages"]
    assert {name: locked[f"node_modules/{name}"]["version"] for name in packages} == packages
