"""Lanes with the same behaviour are one on the axis; the chain is not folded, and a fold names what it hides."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import around
import fixture
import pytest
from test_web_browser import until

from web.api import read_axis
from web.axis import Builder, name_parts
from web.folds import ALIKE, behaviour, folds
from web.reading import Reader

LANES = [{"id": f"link|n{n}", "layer": "link", "label": f"n{n}  eth0"} for n in range(6)]


def band(lane: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"lane": lane, "kind": kind, **more}


def mark(lane: str, event: str, role: str = "effect") -> dict[str, Any]:
    return {"lane": lane, "event": event, "role": role}


@pytest.mark.parametrize(
    ("layer", "marks", "bands", "words"),
    [
        ("link", [], [band("x", "no_carrier")], "no carrier"),
        ("link", [mark("x", "nic.link_up")], [band("x", "late"), band("x", "down")], "DOWN, lines came late"),
        ("node", [], [band("x", "idle"), band("x", "busy")], ""),
        ("gpu", [mark("x", "gpu.xid"), mark("x", "gpu.ecc", "context")], [], "gpu.xid"),
        ("gpu", [mark("x", "gpu.ecc", "context")], [], ""),
        ("job", [], [band("x", "job", state="NODE_FAIL")], "NODE_FAIL"),
    ],
)
def test_a_lane_is_reported_in_words(layer: str, marks: list[Any], bands: list[Any], words: str) -> None:
    assert behaviour({"layer": layer}, marks, bands) == words


def test_equal_lanes_fold_but_for_those_that_carry_the_chain() -> None:
    lost = [band(lane["id"], "no_carrier") for lane in LANES]
    (fold,) = folds(LANES, [], lost, keep={"link|n2"})
    assert fold["lanes"] == ["link|n0", "link|n1", "link|n3", "link|n4", "link|n5"]
    assert (fold["noun"], fold["says"]) == ("links", "no carrier")


def test_few_lanes_and_lanes_that_differ_stay_apart() -> None:
    assert folds(LANES, [], [band(lane["id"], "no_carrier") for lane in LANES[: ALIKE - 1]], set()) == []
    mixed = [band(lane["id"], "no_carrier" if n % 2 else "disabled") for n, lane in enumerate(LANES)]
    assert folds(LANES, [], mixed, set()) == []


def test_the_axis_of_a_wide_incident_folds_and_keeps_root_and_first_effect() -> None:
    store = fixture.build()
    around.wide(store, 16)
    read = Reader(store)
    axis = read_axis(read, read.incident("I9"))
    found = {fold["says"]: len(fold["lanes"]) for fold in axis["folds"]}
    assert len(axis["lanes"]) == 33 and found == {"nic.link_down": 15, "no carrier": 16}
    hidden = {lane for fold in axis["folds"] for lane in fold["lanes"]}
    assert not hidden & {"switch|leaf01  leaf01", "link|n00  eth0"}


@pytest.mark.browser
def test_a_fold_opens_by_key_and_says_what_it_hides(look: Any, wide_site: str) -> None:
    page = look(at=wide_site).open("/incidents/I9", axis=True)
    rows = "document.getElementById('axis').axis.view.rows.length"
    buttons = page.locator("#axis .folds button")
    assert page.evaluate(rows) == 4 and buttons.count() == 2
    assert buttons.all_inner_texts() == ["▸ 16 links: no carrier", "▸ 15 links: nic.link_down"]
    first = page.locator("#axis .folds button", has_text="15 links")
    assert "n07 eth0" in first.get_attribute("title") and first.get_attribute("aria-expanded") == "false"
    # The chain's arrows into the fold are one, with the range of their lags.
    reported = page.evaluate("document.getElementById('axis').axis.hits.pills.map(hit => hit.arrow.lag_text)")
    assert "1.1 s to 2.5 s, 15×" in reported and len(reported) == 2
    first.focus()
    page.keyboard.press("Enter")
    assert page.evaluate(rows) == 18
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    page.keyboard.press("Enter")
    assert page.evaluate(rows) == 4
    page.locator("[data-layer=all]").click()
    assert page.evaluate(rows) == 33 and buttons.count() == 0


@pytest.mark.browser
def test_an_address_keeps_cursor_choice_and_opened_lanes(look: Any, wide_site: str) -> None:
    page = look(at=wide_site).open("/incidents/I9", axis=True)
    state = """(() => { const { state, view, show } = document.getElementById('axis').axis;
        return [state.selected, state.cursor, state.pinned, view.rows.length, show.all]; })()"""
    page.locator("#axis .folds button", has_text="15 links").click()
    page.locator("#chain > li .n").last.click()
    until(page, "location.search.includes('event=') && location.search.includes('open=')")
    chosen = page.evaluate(state)
    assert chosen[0] and chosen[2:] == [True, 18, False]
    page.reload()
    page.wait_for_selector("#axis[data-ready=yes]")
    assert page.evaluate(state) == chosen and page.locator("#chain > li.on").count() == 1
    page.keyboard.press("Escape")
    page.locator("[data-layer=all]").click()
    until(page, "location.search.endsWith('lanes=all') || location.search.includes('lanes=all&')")
    assert "event=" not in page.url
    # Names that this incident does not have do nothing.
    page = look(at=wide_site).open("/incidents/I9?event=nobody&open=no%7Cfold&at=yesterday", axis=True)
    assert page.evaluate(state)[0] is None and page.evaluate(state)[3] == 4


def test_jobs_that_an_incident_ended_or_slowed_come_before_those_that_only_ran_meanwhile() -> None:
    builder = Builder(datetime(2026, 1, 13))
    for job in ("10", "11", "12", "13"):
        builder.lane("job", job, "train", "job")
    builder.lane("job", "13", "step time", "s")
    builder.lane("node", "gpu02")
    name_parts(builder, {"jobs": [{"job_id": "13"}], "slowed_jobs": ["12"]}, {key: {"run_key": key, "name": "train"} for key in ("12", "13")})  # fmt: skip
    order = [lane["label"] for lane in builder.sorted_lanes()]
    assert order == ["gpu02", "13  step time", "13  train", "12  train", "10  train", "11  train"]


def test_sentence_axis_chain_and_raw_lines_are_on_the_first_screen(look: Any, wide_site: str) -> None:
    page = look(at=wide_site).open("/incidents/I9", axis=True)
    page.evaluate("document.querySelector('[data-layer=all]').click()")  # more lanes than the screen has room for
    assert page.evaluate("document.getElementById('axis').getBoundingClientRect().bottom") > 900
    places = page.evaluate("""() => {
      const of = query => document.querySelector(query).getBoundingClientRect();
      return [of('h1').bottom, of('#axis').top + 100, of('[data-live=chain] section').top + 40, of('.log').bottom];
    }""")
    assert all(0 < place <= 900 for place in places), places
    page.evaluate("scrollTo(0, document.body.scrollHeight)")  # then it is in its own place
    assert page.evaluate("document.querySelector('.log').getBoundingClientRect().top") > page.evaluate(
        "document.querySelector('.legend').getBoundingClientRect().bottom"
    )
