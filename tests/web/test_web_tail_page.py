"""The page of new lines: what a broken stream and a paused view do to the lines, and that the page says it."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from test_web_browser import until

pytestmark = pytest.mark.browser

START, END = "2026-11-21T00:30:00Z", "2026-11-21T00:30:05Z"


def line(number: int, identity: str = START, **more: Any) -> str:
    row = {"Time": "2026-11-21T00:30:01.5Z", "ReceivedTime": "2026-11-21T00:30:02Z", "Host": f"gpu{number % 3:02d}", "Source": "kernel",
           "Message": f"line {number} <img src=x>", "File": "syslog", "Line": number} | more  # fmt: skip
    return f"id: {identity}\nevent: line\ndata: {json.dumps(row)}\n\n"


def said(event: str, **data: Any) -> str:
    return f"event: {event}\ndata: {json.dumps(data)}\n\n"


class Streams:
    """Answers the streams that a page opens, one after the other; the last one refuses."""

    def __init__(self, eyes: Any, *bodies: str) -> None:
        self.bodies, self.asked = list(bodies), []
        eyes.page.route("**/api/v1/tail?*", self.answer)

    def answer(self, route: Any) -> None:
        self.asked.append({name: value[0] for name, value in parse_qs(urlsplit(route.request.url).query).items()})
        if self.bodies:
            route.fulfill(content_type="text/event-stream", body=": tailing\n\n" + self.bodies.pop(0))
        else:
            problem = {"detail": "no column Hots", "line": 1, "column": 1, "suggestion": "Host"}
            route.fulfill(status=400, content_type="application/problem+json", body=json.dumps(problem))


@pytest.mark.parametrize("width", [1440, pytest.param(390, marks=pytest.mark.long)])
def test_a_stream_that_broke_goes_on_without_a_gap_or_says_where_it_is(look: Any, width: int) -> None:
    eyes = look(width)
    streams = Streams(
        eyes,
        line(1) + line(2, END),
        said("gap", **{"from": START, "to": END}) + line(2, END) + line(3, "2026-11-21T00:30:09Z"),
    )
    page = eyes.open('/tail?filter=Host has "gpu"')
    until(page, "!document.getElementById('fault').hidden")
    assert [one.get("since") for one in streams.asked] == [None, END, "2026-11-21T00:30:09Z"]
    assert {one["filter"] for one in streams.asked} == {'Host has "gpu"'}
    shown = page.locator("#view > *").all_inner_texts()
    assert page.locator("#view .ln").count() == 3 and page.locator("#view img").count() == 0
    words = ("line 1 <img", "line 2 <img", "broke", "connected again", "not repeated", "line 3 <img", "broke")
    assert [word in text for word, text in zip(words, shown, strict=True)] == [True] * len(words), shown
    assert page.locator("#view .missing").count() == 1 and "3 lines came" in page.inner_text("#said")
    assert "Did you mean Host?" in page.inner_text("#fault") and page.inner_text("#state") == "ended"
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    link = page.locator("#view .go").first.get_attribute("href")
    assert parse_qs(urlsplit(link).query)["from"] == ["2026-11-21T00:29:31.500Z"]
    eyes.shoot(f"tail-{width}")
    eyes.faults.clear()  # the browser itself reports the 400


@pytest.mark.long
def test_a_paused_view_keeps_what_fits_and_counts_the_rest(look: Any) -> None:
    eyes = look()
    Streams(eyes, line(1), "".join(line(n, f"2026-11-21T00:31:00.{n:06}Z") for n in range(2, 5402)))
    page = eyes.open("/tail")
    page.locator("#view .mark").first.click()
    page.locator("#pause").click()
    until(page, "document.getElementById('pause').innerText.includes('dropped')")
    until(page, "document.getElementById('pause').innerText === 'Continue · 5,000 wait, 400 older dropped'")
    assert page.locator("#view .ln").count() == 1
    page.locator("#pause").click()
    until(page, "document.getElementById('view').lastElementChild.innerText.includes('broke')")
    until(page, "document.getElementById('view').childElementCount === 1001")  # a thousand, and the marked one
    assert page.locator("#view .ln.hot").all_inner_texts()[0].count("line 1 ") == 1
    assert "5,401 lines came" in page.inner_text("#said") and "dropped while the view was paused" in page.inner_text(
        "#said"
    )
    page.locator("#marked").click()
    assert page.locator("#view .ln:visible").count() == 1
    eyes.faults.clear()
