"""What only a browser shows: the axis draws, follows keys and pointer, and no error is logged."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import quote

import pytest

from web.reading import Reader

pytestmark = pytest.mark.browser

TEXTS = ("<img src=x onerror=alert(1)>", "b", "c")
ROWS = {
    "columns": [{"name": "Time", "type": "datetime"}, {"name": "Message", "type": "string"}],
    "rows": [[f"2026-11-21T00:3{n}:52Z", text] for n, text in enumerate(TEXTS)], "truncated": True, "elapsed_ms": 4,
}  # fmt: skip


def until(page: Any, expression: str) -> None:
    """Waits for an expression. Playwright's own wait evaluates text in the page, which the policy forbids."""
    for _ in range(100):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never came true: {expression}")


SPAN = "document.getElementById('axis').axis.scale.span"
COLOURS = """() => {
  const c = document.querySelector('#axis canvas'), seen = new Set();
  const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
  for (let n = 0; n < d.length; n += 40) seen.add(d[n] << 16 | d[n + 1] << 8 | d[n + 2]);
  return seen.size;
}"""
FRAMES = """() => {
  const a = document.getElementById('axis').axis, all = [];
  for (let n = 0; n < 30; n++) { a.zoom(n < 15 ? .9 : 1.1); a.paint(); all.push(a.frameMs); }
  return all.sort((x, y) => x - y)[15];
}"""


def test_axis_draws_and_keys_change_the_range(look: Any) -> None:
    page = look().open("/incidents/I1", axis=True)
    assert page.evaluate(COLOURS) > 30
    before = page.evaluate(SPAN)
    page.keyboard.press("w")
    near = page.evaluate(SPAN)
    page.keyboard.press("s")
    assert near < before and page.evaluate(SPAN) == pytest.approx(before, rel=0.02)
    left = page.evaluate("document.getElementById('axis').axis.scale.lo")
    page.keyboard.press("w")
    page.keyboard.press("d")
    assert page.evaluate("document.getElementById('axis').axis.scale.lo") > left
    until(page, "location.search.includes('from=2026-11-21T00%3A30')")
    page.keyboard.press("f")
    page.keyboard.press("f")
    assert page.evaluate(SPAN) > before


def test_a_range_in_the_address_opens_the_axis_there(look: Any) -> None:
    page = look().open("/incidents/I1?from=2026-11-21T00:30:50.000000Z&to=2026-11-21T00:30:55.500000Z", axis=True)
    assert page.evaluate(SPAN) == pytest.approx(5.5, abs=1e-3)


def test_the_cursor_brings_its_raw_lines_and_their_surroundings(look: Any) -> None:
    page = look().open("/incidents/I1", axis=True)
    page.wait_for_selector("#lines .ln.hot")
    assert "setting DOWN" in page.inner_text("#lines .ln.hot")
    at = page.evaluate("(() => { const a = document.getElementById('axis').axis; return a.scale.x(44.343); })()")
    box = page.locator("#axis canvas").bounding_box()
    page.mouse.move(box["x"] + at, box["y"] + 200)
    until(page, "document.getElementById('lines').innerText.includes('No route to host')")
    page.locator("#lines .file").first.click()
    page.wait_for_selector("#lines .ctx .me")
    assert page.locator("#lines .ctx div").count() >= 5


def test_chain_steps_move_the_cursor_by_click_and_by_key(look: Any) -> None:
    page = look().open("/incidents/I1", axis=True)
    page.locator("#chain li .n").nth(5).click()
    assert page.evaluate("document.getElementById('axis').axis.state.cursor") == pytest.approx(44.343, abs=0.01)
    page.keyboard.press("j")
    assert page.locator("#chain li.on").get_attribute("data-event") == "e9"
    page.keyboard.press("k")
    page.keyboard.press("e")
    assert page.evaluate("document.getElementById('axis').axis.state.selected") == "e7"
    page.keyboard.press("Escape")
    assert page.evaluate("document.getElementById('axis').axis.state.pinned") is False


def test_brushing_the_minimap_and_wheel_zoom(look: Any) -> None:
    page = look().open("/incidents/I1", axis=True)
    box = page.locator("#axis canvas").bounding_box()
    page.mouse.move(box["x"] + 700, box["y"] + 15)
    page.mouse.down()
    page.mouse.move(box["x"] + 800, box["y"] + 15, steps=4)
    page.mouse.up()
    brushed = page.evaluate(SPAN)
    assert brushed < 40
    page.mouse.move(box["x"] + 600, box["y"] + 200)
    page.mouse.wheel(0, -300)
    until(page, f"{SPAN} < {brushed}")


def test_table_theme_search_and_keys(look: Any) -> None:
    page = look().open("/incidents/I1?theme=dark", axis=True)
    page.keyboard.press("t")
    assert page.locator("#table[open] tbody tr").count() == 9
    page.locator("[data-do=theme]").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "light" and "theme=light" in page.url
    page.keyboard.press("?")
    assert page.locator("dialog#keys[open]").count() == 1
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("gpu02")
    page.keyboard.press("Enter")
    page.wait_for_url("**/nodes/gpu02?theme=light")


def test_an_error_stands_under_the_words_that_caused_it(look: Any) -> None:
    eyes = look()
    eyes.answer_queries(
        {"status": 400, "line": 2, "column": 9, "length": 4, "message": "no column Hots", "suggestion": "Host"}, 400
    )
    page = eyes.open("/explore?q=" + quote("Logs\n| where Hots == 1"))
    page.wait_for_selector("#fault:not([hidden])")
    assert "        ^^^^" in page.inner_text("#fault") and "Did you mean Host?" in page.inner_text("#fault")
    assert page.inner_text("#ed .bad") == "Hots"
    eyes.shoot("explore-error")
    page.fill("#q", "Logs\n| where Host == 1")
    assert page.locator("#ed .bad").count() == 0
    eyes.faults.clear()  # the browser itself reports the 400


def test_explore_opens_with_the_rows_of_its_example_shown_as_text(look: Any) -> None:
    eyes = look()
    eyes.answer_queries(ROWS)
    page = eyes.open("/explore")
    page.wait_for_selector("#result tbody tr")
    assert "<img" in page.inner_text("#result") and page.locator("#result img").count() == 0
    assert "Truncated" in page.inner_text("#notes") and page.is_visible("#hist")
    assert page.inner_text("#count") == "3+ rows" and "q=" not in page.url
    page.keyboard.press("Tab")
    page.focus("#q")
    page.keyboard.press("Control+Enter")
    until(page, "location.search.includes('q=Logs')")
    eyes.shoot("explore-result")


def test_a_column_sorts_the_rows_and_the_query_is_kept_for_next_time(look: Any) -> None:
    eyes = look()
    rows = [["b", 10, "1.00:00:00"], ["a", 9, "02:00:00"], ["c", None, "00:00:01.5"]]
    kinds = [("Host", "string"), ("Count", "long"), ("Lag", "timespan")]
    columns = [{"name": name, "type": kind} for name, kind in kinds]
    eyes.answer_queries({"columns": columns, "rows": rows, "truncated": False, "elapsed_ms": 4})
    page = eyes.open("/explore")
    assert page.locator("#asked li").count() == 0  # the example was not requested

    def firsts() -> list[str]:
        return page.locator("#result tbody tr td:first-child").all_inner_texts()

    page.wait_for_selector("#result tbody tr")
    for column, orders in (("Host", ("abc", "cba", "bac")), ("Count", ("abc", "bac")), ("Lag", ("cab", "bac"))):
        for order in orders:
            page.locator("#result th button", has_text=column).press("Enter")
            assert "".join(firsts()) == order
    assert page.locator("#result th[aria-sort=descending]").inner_text().startswith("Lag")
    page.fill("#q", "Jobs\n| take 3")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#asked li")
    page.goto(eyes.site + "/explore", wait_until="networkidle")
    page.locator("#asked a").first.click()
    page.wait_for_load_state("networkidle")
    assert page.locator("#ed .cm-line").all_inner_texts() == ["Jobs", "| take 3"] and "Jobs" in page.url


def test_long_lists_scroll_in_themselves_and_their_short_cells_do_not_wrap(look: Any) -> None:
    eyes = look()
    rows = [[f"2026-11-21T00:{n % 60:02d}:52Z", "a very long line of a log " * 8] for n in range(200)]
    eyes.answer_queries({**ROWS, "rows": rows})
    page = eyes.open("/explore")
    page.wait_for_selector("#result tbody tr")
    assert page.evaluate("document.documentElement.scrollHeight") < 1600
    assert page.locator("#result tbody tr").first.locator("td").first.bounding_box()["height"] < 100
    assert page.locator("#result td.wide").first.bounding_box()["width"] >= 380
    page.evaluate("document.getElementById('rows').scrollTop = 2000")
    head = page.locator("#result thead").bounding_box()
    assert head["y"] == pytest.approx(page.locator("#rows").bounding_box()["y"], abs=2)


def test_the_button_of_a_running_query_ends_it(look: Any) -> None:
    page = (eyes := look()).page
    held: list[Any] = []
    page.route("**/api/v1/query", lambda route: held.append(route))
    page.goto(eyes.site + "/explore", wait_until="load")
    until(page, "document.getElementById('run').innerText === 'Stop'")
    page.locator("#run").click()
    until(page, "document.getElementById('took').innerText === 'stopped'")
    assert page.inner_text("#run").startswith("Run") and len(held) == 1


def test_on_a_narrow_screen_rows_are_short_until_all_fields_are_asked_for(look: Any) -> None:
    page = look(390).open("/jobs")
    row = page.locator("table.cards tbody tr").first
    assert row.bounding_box()["height"] < 110 and not row.locator("[data-h=Nodes]").is_visible()
    page.get_by_label("All fields").check()
    assert row.locator("[data-h=Nodes]").is_visible() and "gpu[03-04]" in page.inner_text("table.cards")
    assert not look(1440).open("/jobs").get_by_label("All fields").is_visible()


#: On how many lines of the page a text stands.
LINES_OF = """text => {
  const walk = document.createTreeWalker(document.querySelector('aside'), NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode());) {
    const at = node.data.indexOf(text);
    if (at < 0) continue;
    const range = document.createRange();
    range.setStart(node, at);
    range.setEnd(node, at + text.length);
    return new Set([...range.getClientRects()].map(one => Math.round(one.top))).size;
  }
}"""


@pytest.mark.parametrize("width", [390, 1440])
def test_who_took_a_node_out_of_service_is_not_broken_in_the_middle(look: Any, width: int, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """The column beside the events is as narrow as a phone."""
    begin, reason = datetime(2026, 11, 21, 0, 30, 17), "Not responding since the prolog"
    period = {"begin": begin, "end": None, "seconds": 4000, "state": "drained", "reason": reason, "actor": "slurm(64030)",
              "times": 3, "jobs_waiting": 2}  # fmt: skip
    monkeypatch.setattr(Reader, "drains", lambda *_: [period])
    page = look(width).open("/nodes/gpu02")
    assert {text: page.evaluate(LINES_OF, text) for text in ("slurm(64030)", "responding", "2026-11-21 00:30:17")} == {
        "slurm(64030)": 1, "responding": 1, "2026-11-21 00:30:17": 1,
    }  # fmt: skip


@pytest.mark.long
def test_twelve_thousand_marks_stay_fluent(look: Any, dense_site: str) -> None:
    """Compared with a frame of a few marks on the same machine in the same minute, so that a busy one passes as well."""
    frames = {}
    for name, at in (("few", None), ("dense", dense_site)):
        eyes = look(at=at) if at else look()
        page = eyes.open("/incidents/I1", axis=True)
        page.evaluate("document.getElementById('axis').axis.toggle('all')")
        frames[name] = page.evaluate(FRAMES)
    eyes.shoot("incident-dense")
    print(frames)
    assert frames["dense"] < 50 * max(frames["few"], 0.5), f"median frames, ms: {frames}"
