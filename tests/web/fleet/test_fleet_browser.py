"""The map of all nodes in a browser: pointer and keys find the node that is drawn there, the slider goes back in time."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from test_web_browser import until

pytestmark = [pytest.mark.browser, pytest.mark.long]

#: The middle of a node on the screen.
MIDDLE = """async node => {
  const { Places } = await import('/static/fleet/map.js');
  const map = document.getElementById('map'), svg = map.querySelector('svg'), box = svg.getBoundingClientRect();
  const { x, y } = new Places(map.dataset.blocks).corner(node), view = svg.viewBox.baseVal, scale = box.width / view.width;
  return [box.left + (x + 5 - view.x) * scale, box.top + (y + 5) * scale];
}"""
TIP = "document.getElementById('node-tip')"


def opened(look: Any, address: str, width: int = 1440) -> Any:
    page = look(width).open(address)
    page.wait_for_selector("#fleet[data-ready=yes]")
    return page


def test_the_pointer_names_the_node_under_it_and_opens_it(look: Any) -> None:
    page = opened(look, "/fleet?at=2026-11-21T00:31:00Z&theme=light")
    page.mouse.move(*page.evaluate(MIDDLE, 1))
    until(page, f"!{TIP}.hidden && {TIP}.innerText.startsWith('gpu02')")
    assert "DOWN*, Not responding" in page.inner_text("#node-tip")
    page.mouse.click(*page.evaluate(MIDDLE, 1))
    page.wait_for_url("**/nodes/gpu02?theme=light")


def test_keys_walk_over_the_map_and_enter_opens(look: Any) -> None:
    page = opened(look, "/fleet")
    page.focus("#map")
    page.keyboard.press("ArrowRight")
    until(page, "document.getElementById('status').textContent.startsWith('gpu01, idle')")
    page.keyboard.press("End")
    until(page, "document.getElementById('status').textContent.startsWith('ctl, not known')")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    until(page, "document.getElementById('status').textContent.startsWith('gpu02')")
    wide = page.evaluate("document.querySelector('#map svg').getBoundingClientRect().width")
    page.keyboard.press("w")
    assert page.evaluate("document.querySelector('#map svg').getBoundingClientRect().width") > wide
    page.keyboard.press("s")
    assert page.evaluate("document.querySelector('#map svg').getBoundingClientRect().width") == pytest.approx(
        wide, abs=2
    )
    page.keyboard.press("Enter")
    page.wait_for_url("**/nodes/gpu02")


def test_the_slider_shows_an_earlier_moment_and_its_address_does_too(look: Any) -> None:
    page = opened(look, "/fleet?incident=I1")
    assert page.locator("#map .hurt").count() == 2
    page.focus("#moment")
    page.keyboard.press("Home")
    until(page, "document.querySelectorAll('#map .hurt').length === 0")
    at = parse_qs(urlsplit(page.url).query)["at"][0]
    assert at.startswith("2026-11-21T00:29:17") and "00:29:17" in page.inner_text("#map-h")
    assert page.evaluate("document.activeElement.id") == "moment"
    page.click("#play")
    page.wait_for_selector("#map .hurt ~ .hurt", state="attached", timeout=120_000)
    page.click("#play")
    until(page, "document.getElementById('play').textContent === 'Play'")
    page.click("#play")  # and once more, from the beginning
    page.wait_for_selector("#map .hurt", state="detached", timeout=120_000)
    page.wait_for_selector("#map .hurt ~ .hurt", state="attached", timeout=120_000)


def test_a_narrow_window_gets_fewer_nodes_in_a_row(look: Any) -> None:
    page = opened(look, "/fleet", 390)
    until(page, "document.getElementById('map').dataset.columns < 40")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_without_a_script_the_map_is_drawn_and_leads_to_nodes(browser: Any, site: str) -> None:
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(f"{site}/fleet?at=2026-11-21T00:31:00Z")
    assert page.locator("#map path.bad").count() == 1 and page.locator("#map path.unknown").count() == 1
    page.select_option("select[name=measure]", "incidents")
    page.click("#choice button")
    assert "measure=incidents" in page.url and "at=2026-11-21T00" in page.url
    page.click("text=gpu02")
    assert "/nodes/gpu02" in page.url
