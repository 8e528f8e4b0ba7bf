"""Keyboard and screen reader: where the focus goes, whether it is visible, accessible names, skip links."""

from __future__ import annotations

from typing import Any

import pytest
from test_web_contrast import PAGES

pytestmark = pytest.mark.browser

#: The focused element: its accessible name, whether the focus is drawn, whether it is visible at all.
FOCUSED = """() => {
  const e = document.activeElement, s = getComputedStyle(e), box = e.getBoundingClientRect();
  const label = e.getAttribute('aria-label') || (e.labels && [...e.labels].map(l => l.textContent).join(' ')) ||
    document.getElementById(e.getAttribute('aria-labelledby'))?.textContent || e.textContent || e.title || '';
  return {
    what: e.outerHTML.slice(0, 80), body: e === document.body, name: label.trim(), skip: e.matches('.skip'),
    drawn: s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 1.5, seen: box.width > 0 && box.height > 0,
    back: e.tabIndex > 0,
  };
}"""
SHAPE = """() => ({
  h1: document.querySelectorAll('h1').length, main: document.querySelectorAll('main').length,
  current: document.querySelectorAll('nav [aria-current=page]').length,
  heads: [...document.querySelectorAll('th')].filter(e => !e.scope).length,
  ids: [...document.querySelectorAll('[id]')].map(e => e.id).filter((id, n, all) => all.indexOf(id) !== n),
  target: !!document.querySelector(document.querySelector('.skip').getAttribute('href')),
  levels: [...document.querySelectorAll('h1, h2, h3')].map(e => Number(e.tagName[1])),
  fields: [...document.querySelectorAll('input:not([type=hidden]), select, textarea')]
    .filter(e => !e.labels?.length && !e.getAttribute('aria-label')).map(e => e.outerHTML),
})"""


#: Pages of which no other is made in the same way; ``make test-long`` takes all.
DIFFERENT = ("/incidents/I1", "/jobs", "/nodes/gpu02", "/explore", "/dashboards/cluster-now")


@pytest.mark.parametrize("path", [pytest.param(p, marks=() if p in DIFFERENT else pytest.mark.long) for p in PAGES])
def test_a_page_can_be_walked_by_key_and_by_its_outline(look: Any, path: str) -> None:
    eyes = look()
    eyes.answer_queries({"columns": [{"name": "Message", "type": "string"}], "rows": [["a line"]], "truncated": False})
    page = eyes.open(path)
    shape = page.evaluate(SHAPE)
    assert (shape["h1"], shape["main"], shape["heads"]) == (1, 1, 0) and shape["target"]
    assert shape["current"] == (0 if path.startswith("/search") else 1)
    assert shape["fields"] == [] and shape["ids"] == [] and shape["levels"][0] in {1, 2}
    walked = []
    for _ in range(200):
        page.keyboard.press("Tab")
        at = page.evaluate(FOCUSED)
        if at["body"] or (walked and at["skip"]):
            break
        walked.append(at)
    assert walked[0]["skip"] and len(walked) > 10
    assert [at["what"] for at in walked if not (at["name"] and at["drawn"] and at["seen"]) or at["back"]] == []


def test_the_skip_link_leads_past_the_top_bar(look: Any) -> None:
    page = look().open("/jobs")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('main').contains(document.activeElement)")


def test_an_answer_is_written_by_key_alone(look: Any) -> None:
    page = look().open("/jobs/15")
    page.locator("#wrong summary").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "category" and page.locator("#w-category").is_visible()


def test_the_axis_says_what_it_shows_and_where_it_stands_as_text(look: Any) -> None:
    page = look().open("/incidents/I1", axis=True)
    canvas = page.locator("#axis canvas")
    assert canvas.get_attribute("role") == "img" and "table below" in canvas.get_attribute("aria-label")
    page.locator("#axis canvas").focus()
    page.keyboard.press("e")
    assert page.inner_text("#status").startswith("slurm.job_node_fail on gpu01, 00:30:52")
    page.keyboard.press("t")
    assert page.evaluate("document.activeElement.closest('#table') !== null")
    assert page.locator("#table caption").count() == 1 and page.locator("#table th[scope=col]").count() == 8


def test_nothing_moves_for_who_asked_for_no_motion(look: Any) -> None:
    page = look().page
    page.emulate_media(reduced_motion="reduce")
    page.goto(look().site + "/incidents/I1", wait_until="networkidle")
    moving = "[...document.querySelectorAll('*')].filter(e => getComputedStyle(e).transitionDuration !== '0s').length"
    assert page.evaluate(moving) == 0 and page.evaluate("document.getAnimations().length") == 0
