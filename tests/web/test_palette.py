"""The search dialog is a command palette: pages and the buttons of a page by a few letters; Enter without a choice searches."""

from __future__ import annotations

from typing import Any

import pytest
from test_web_browser import until

pytestmark = pytest.mark.browser
SHOWN = "[...document.querySelectorAll('#commands [role=option]')].map(option => option.firstChild.data)"


def opened(page: Any, key: str) -> None:
    page.keyboard.press(key)
    page.wait_for_selector("dialog#search[open]")
    page.wait_for_selector("#commands [role=option]")


def test_a_page_is_opened_by_a_few_letters(look: Any) -> None:
    page = look().open("/incidents/I1?theme=dark")
    opened(page, "Control+k")
    assert {"Incidents", "Fleet", "Repairs", "Copy link", "JSON", "Switch theme"} <= set(page.evaluate(SHOWN))
    page.keyboard.type("repa")
    assert page.evaluate(SHOWN) == ["Repairs"]
    page.keyboard.press("ArrowDown")
    assert page.get_attribute("#search input[type=search]", "aria-activedescendant") == "command-0"
    page.keyboard.press("Enter")
    page.wait_for_url("**/repairs?theme=dark")


def test_a_button_of_the_page_is_pressed(look: Any) -> None:
    page = look().open("/incidents/I1?theme=dark")
    opened(page, "/")
    page.keyboard.type("theme")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    until(page, "document.documentElement.dataset.theme === 'light'")
    assert page.locator("dialog[open]").count() == 0
    opened(page, "/")
    page.locator("#search input[type=search]").fill("copy li")
    page.locator("#commands [role=option]", has_text="Copy link").click()
    until(page, "/Copied|not allowed/.test(document.querySelector('[data-copy-link]').textContent)")


def test_without_a_choice_it_searches(look: Any) -> None:
    page = look().open("/")
    opened(page, "/")
    page.keyboard.type("gpu02")
    assert page.evaluate(SHOWN) == [] and page.locator("#commands").is_hidden()
    page.keyboard.press("Enter")
    page.wait_for_url("**/nodes/gpu02")


def test_arrows_go_around_and_back_to_the_text(look: Any) -> None:
    page = look().open("/jobs")
    opened(page, "/")
    page.keyboard.type("fleet")
    chosen = "document.querySelector('#commands [aria-selected=true]')?.firstChild.data ?? null"
    assert page.evaluate(chosen) is None
    for key, expected in (("ArrowDown", "Fleet"), ("ArrowDown", None), ("ArrowUp", "Fleet"), ("ArrowUp", None)):
        page.keyboard.press(key)
        assert page.evaluate(chosen) == expected
    page.keyboard.press("Escape")  # empties the text, as in every search field
    page.keyboard.press("Escape")
    until(page, "!document.querySelector('dialog[open]')")
