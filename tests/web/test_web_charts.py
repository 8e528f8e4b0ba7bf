"""`render` on the query page: charts draw the rows, omit nothing silently, and treat no text as markup."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from store import open_store
from web.app import create_app

pytestmark = pytest.mark.browser
TIMES = [f"2026-11-21T00:3{n}:00Z" for n in range(4)]
KINDS = {"Time": "datetime", "Host": "string", "N": "long", "Axis": "dynamic", "Values": "dynamic"}


def answer(names: str, rows: list[list[Any]], **render: Any) -> dict[str, Any]:
    columns = [{"name": name, "type": KINDS[name]} for name in names.split()]
    return {"columns": columns, "rows": rows, "truncated": False, "elapsed_ms": 1, "render": {"series": [], **render}}


def drawn(look: Any, document: dict[str, Any], width: int = 1440) -> Any:
    eyes = look(width)
    eyes.answer_queries(document)
    page = eyes.open("/explore")
    page.wait_for_selector("#result tbody tr")
    return page


#: How many pixels of a ring have its very colour, at least: browsers smooth its edges.
RING = 10


def hues(page: Any, least: int = 40) -> int:
    """The number of colours that more than ``least`` pixels of the canvas have."""
    found: int = page.evaluate(
        """least => {
          const canvas = document.querySelector('#chart canvas');
          const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          const seen = new Map();
          for (let at = 0; at < data.length; at += 4) {
            if (data[at + 3] < 255) continue;
            const colour = `${data[at]},${data[at + 1]},${data[at + 2]}`;
            seen.set(colour, (seen.get(colour) ?? 0) + 1);
          }
          return [...seen.values()].filter(count => count > least).length;
        }""",
        least,
    )
    return found


@pytest.mark.parametrize("kind", ["timechart", "columnchart", "areachart", "scatterchart"])
def test_series_are_drawn_and_named(look: Any, kind: str) -> None:
    rows = [
        [time, host, (n + 1) * (7 if host == "gpu01" else 3)]
        for n, time in enumerate(TIMES)
        for host in ("gpu01", "<b>x")
    ]
    page = drawn(
        look, answer("Time Host N", rows, visualization=kind, x="Time", y=["N"], series=["Host"], title="<i>Lines")
    )
    assert page.locator("#chart .legend li").all_inner_texts() == ["gpu01", "<b>x"]
    assert page.inner_text("#chart h3") == "<i>Lines"
    assert hues(page) >= 3  # both series, and the lines of the axes
    box = page.locator("#chart canvas").bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 100)
    assert page.locator("#chart .tip").inner_text().split("\n")[0].startswith("2026-11-21 00:30:00")
    assert not page.is_visible("#hist")


def test_series_of_make_series_are_unfolded_over_their_axis(look: Any) -> None:
    rows = [["gpu01", [1, 5, 2, 3], TIMES], ["gpu02", [4, None, 1, 1], TIMES]]
    page = drawn(
        look, answer("Host Values Axis", rows, visualization="timechart", x="Axis", y=["Values"], series=["Host"])
    )
    assert page.locator("#chart .legend li").count() == 2
    box = page.locator("#chart canvas").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 20, box["y"] + 100)
    assert page.locator("#chart .tip div").all_inner_texts() == ["gpu01  3", "gpu02  1"]


def test_bars_are_texts_with_lengths_and_shares(look: Any) -> None:
    rows = [["a", 1], ["b", 3], ["", 0]]
    page = drawn(look, answer("Host N", rows, visualization="piechart", x="Host", y=["N"]), 390)
    reported = [text.replace("\n", " ") for text in page.locator("#chart .bars li").all_inner_texts()]
    assert reported == ["b 3 (75.0 %)", "a 1 (25.0 %)", "(empty) 0 (0.0 %)"]
    lengths = [page.locator("#chart .bar").nth(n).bounding_box()["width"] for n in range(2)]
    assert lengths[0] == pytest.approx(3 * lengths[1], rel=0.02)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_is_left_out_is_stated(look: Any) -> None:
    many = [[TIMES[n % 4], f"gpu{n:02}", 1 + n] for n in range(20)] + [[None, "gpu19", 3]]
    page = drawn(look, answer("Time Host N", many, visualization="timechart", x="Time", y=["N"], series=["Host"]))
    assert "The 12 largest of 20 series are drawn" in page.inner_text("#notes")
    assert "1 row has no Time" in page.inner_text("#notes")
    assert page.locator("#chart .legend li").count() == 12
    bars = drawn(look, answer("Host N", [[f"n{n}", n] for n in range(90)], visualization="barchart", x="Host", y=["N"]))
    assert "60 of 90 bars" in bars.inner_text("#notes") and bars.locator("#chart .bars li").count() == 60


def tips(page: Any, x: float) -> list[str]:
    """What the readout says at a share of the chart's width."""
    box = page.locator("#chart canvas").bounding_box()
    page.mouse.move(box["x"] + 52 + x * (box["width"] - 66), box["y"] + 100)
    found: list[str] = page.locator("#chart .tip div").all_inner_texts()
    return found


def inked(page: Any, x: float) -> int:
    """The number of pixels in the first hue in a column of the canvas, at a share of the chart's width."""
    found: int = page.evaluate(
        """share => {
          const canvas = document.querySelector('#chart canvas');
          const ratio = canvas.width / canvas.clientWidth;
          const hue = getComputedStyle(canvas).getPropertyValue('--link').trim();
          const wanted = document.createElement('canvas').getContext('2d');
          wanted.fillStyle = hue;
          wanted.fillRect(0, 0, 1, 1);
          const [r, g, b] = wanted.getImageData(0, 0, 1, 1).data;
          const at = Math.round((52 + share * (canvas.clientWidth - 66)) * ratio);
          const { data } = canvas.getContext('2d').getImageData(at, 0, 1, canvas.height);
          let count = 0;
          for (let n = 0; n < data.length; n += 4)
            count += Math.abs(data[n] - r) + Math.abs(data[n + 1] - g) + Math.abs(data[n + 2] - b) < 60;
          return count;
        }""",
        x,
    )
    return found


def test_values_of_one_moment_are_never_added_in_a_line(look: Any) -> None:
    """Eight GPUs of 90 degrees are no node of 720."""
    rows = [[time, "gpu01", 83 + gpu] for time in TIMES for gpu in range(8)]
    page = drawn(look, answer("Time Host N", rows, visualization="timechart", x="Time", y=["N"], series=["Host"]))
    assert "several values at one Time: each is a point, and no line is drawn" in page.inner_text("#notes")
    assert tips(page, 0.0) == [f"gpu01  {90 - n}" for n in range(8)]
    assert inked(page, 0.5) == 0 and inked(page, 0.0) > 8


def test_values_of_one_bar_are_added_and_that_is_stated(look: Any) -> None:
    rows = [["gpu01", 2], ["gpu01", 3], ["gpu02", 1]]
    page = drawn(look, answer("Host N", rows, visualization="barchart", x="Host", y=["N"]))
    texts = [text.replace("\n", " ") for text in page.locator("#chart .bars li").all_inner_texts()]
    assert texts == ["gpu01 5", "gpu02 1"] and "several values at one Host: they are added" in page.inner_text("#notes")


MINUTES = [f"2026-11-21T00:{n:02}:00Z" for n in range(11)]


@pytest.mark.parametrize(
    ("rows", "names", "gap"),
    [
        ([[time, 5] for time in MINUTES], "Time N", False),
        ([[time, 5] for n, time in enumerate(MINUTES) if n not in (4, 5, 6)], "Time N", True),
        ([[[None if n in (4, 5, 6) else 5 for n in range(11)], MINUTES]], "Values Axis", True),
        ([[MINUTES[n], 5] for n in (0, 1, 9, 10)], "Time N", True),
        # Moments, no bins: the line goes on.
        ([["2026-11-21T00:00:00Z", 5], ["2026-11-21T00:01:07Z", 5], ["2026-11-21T00:10:20Z", 5]], "Time N", False),
    ],
)
def test_a_line_ends_where_there_is_no_value(look: Any, rows: list[list[Any]], names: str, gap: bool) -> None:
    x, y = ("Axis", "Values") if "Axis" in names else ("Time", "N")
    page = drawn(look, answer(names, rows, visualization="timechart", x=x, y=[y], legend="hidden"))
    assert (inked(page, 0.5) == 0) == gap and inked(page, 0.05) > 0


def test_anomalies_are_rings_on_the_line_that_they_are_of(look: Any) -> None:
    """The last column of arrays is no axis: that has the times."""
    kinds = {"Values": "dynamic", "Axis": "dynamic", "Odd": "dynamic"}
    seen = []
    for odd in ([0, 0, 1, 0], [0, 0, 0, 0]):
        found = answer("Values Axis", [[[5, 5, 90, 5], TIMES, odd]], visualization="anomalychart", x="Odd", y=["Values", "Axis"], anomalycolumns=["Odd"])  # fmt: skip
        found["columns"] = [{"name": name, "type": kind} for name, kind in kinds.items()]
        page = drawn(look, found)
        assert page.locator("#chart .legend li").all_inner_texts() == ["Values"]
        assert tips(page, 2 / 3) == ["Values  90"]
        seen.append(hues(page, RING))
    assert seen[0] == seen[1] + 1


@pytest.mark.parametrize(
    ("kind", "said"), [("treemap", "is not drawn here"), ("timechart", "needs a column of numbers")]
)
def test_where_nothing_can_be_drawn_the_table_stays(look: Any, kind: str, said: str) -> None:
    page = drawn(look, answer("Host", [["gpu01"]], visualization=kind, x="Host", y=[]))
    assert said in page.inner_text("#notes") and not page.is_visible("#chart")
    assert page.inner_text("#result tbody") == "gpu01"


def test_the_answer_says_what_is_drawn_only_where_that_was_asked() -> None:
    with open_store(None) as store:
        client = TestClient(create_app(store))
        plain, charted = (
            client.post("/api/v1/query", json={"query": f"range N from 1 to 3 step 1{more}"}).json()
            for more in ("", " | render columnchart with (title='n')")
        )
    assert "render" not in plain and plain["rows"] == charted["rows"]
    assert charted["render"] == {"visualization": "columnchart", "title": "n", "x": "N", "y": [], "series": []}


def test_of_several_tables_the_last_is_shown_and_the_others_are_a_click_away(look: Any) -> None:
    names = {"columns": [{"name": "Host", "type": "string"}], "truncated": False, "elapsed_ms": 1}
    last = {**names, "columns": [{"name": "N", "type": "long"}], "rows": [[7]]}
    others = [{**names, "name": "<b>hosts", "rows": [["gpu01"], ["gpu02"]]}, {**names, "rows": []}]
    eyes = look(1440)
    eyes.answer_queries({**last, "others": others})
    page = eyes.open("/explore")
    page.wait_for_selector("#result tbody tr")
    tables = page.locator("#tables button")
    assert tables.all_inner_texts() == ["<b>hosts · 2", "Table 2 · 0", "Table 3 · 1"]
    assert page.inner_text("#result tbody") == "7" and tables.nth(2).get_attribute("aria-pressed") == "true"
    tables.nth(0).click()
    assert (
        page.locator("#result tbody tr").all_inner_texts() == ["gpu01", "gpu02"]
        and page.inner_text("#count") == "2 rows"
    )
    tables.nth(1).click()
    assert "No row matches" in page.inner_text("#notes")


def test_one_table_has_no_row_of_tables(look: Any) -> None:
    columns = [{"name": "N", "type": "long"}]
    page = drawn(look, {"columns": columns, "rows": [[7]], "truncated": False, "elapsed_ms": 1})
    assert not page.is_visible("#tables")
