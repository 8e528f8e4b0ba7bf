"""Every page in both themes before axe: no violation of WCAG 2.2, levels A and AA."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fixture
import pytest
from serving import serve
from test_web_browser import ROWS
from test_web_contrast import PAGES

from web.access.authentication import Authentication
from web.access.people import Role, Roles
from web.access.sessions import Sessions
from web.access.users import Users, hashed_password

pytestmark = [pytest.mark.browser, pytest.mark.long]

#: Laid there by tests/prepare.sh.
AXE = Path("/opt/faultline-tests/axe/axe_playwright_python/axe.min.js")
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
MORE = ("/incidents?group=root", "/incidents?sort=cost", "/incidents/I-none", "/jobs?state=failed", "/jobs/999999", "/search?q=zzz",
        "/dashboards/gpu-health", "/dashboards/network", "/nothing")  # fmt: skip
COUNTED = {
    "rows": 3, "at": 4, "step_s": 60, "bins": [["2026-11-21T00:30:00Z", 3]], "undated": 0, "patterns": "Logs",
    "facets": [{"column": "Host", "values": [["gpu01", 2], ["gpu02", 1]], "more": False}],
}  # fmt: skip
RUN = """async tags => {
  const told = await axe.run(document, { runOnly: { type: 'tag', values: tags }, resultTypes: ['violations'] });
  return [told.passes.length, told.violations.map(v => `${v.id}: ${v.nodes[0].html.slice(0, 200)} (${v.nodes.length})`)];
}"""


@pytest.fixture(scope="module")
def axe() -> str:
    if not AXE.is_file():
        pytest.skip("no axe on this machine (tests/prepare.sh lays it at /opt/faultline-tests/axe)")
    return AXE.read_text()


@pytest.fixture(scope="module")
def closed_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service that asks who somebody is."""
    folder = tmp_path_factory.mktemp("axe")
    Users(folder / "users.toml", {"ada": hashed_password("correct horse")}, {}).save()
    roles = Roles({Role.OPERATE: frozenset({"ada"})})
    authentication = Authentication(
        users=Users.load(folder / "users.toml"), roles=roles, sessions=Sessions(b"k" * 32, 3600)
    )
    yield from serve(fixture.build(), authentication)


def judged(page: Any, axe: str) -> list[str]:
    """The violations of a page, everything opened."""
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    page.evaluate(f"{axe};0")
    passes, violations = page.evaluate(RUN, TAGS)
    assert passes > 5, "axe looked at nothing"
    return list(violations)


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_axe_finds_nothing_on_any_page(look: Any, axe: str, theme: str) -> None:
    eyes, found = look(), {}
    eyes.answer_queries(ROWS, counts=COUNTED)
    for path in (*PAGES, *MORE):
        page = eyes.open(f"{path}{'&' if '?' in path else '?'}theme={theme}")
        found[path] = judged(page, axe)
    eyes.faults.clear()  # the browser itself reports pages that are not there
    assert {path: bad for path, bad in found.items() if bad} == {}


@pytest.mark.parametrize("path", ["/login", "/first"])
def test_axe_finds_nothing_before_somebody_is_signed_in(look: Any, axe: str, closed_site: str, path: str) -> None:
    for theme in ("dark", "light"):
        eyes = look(at=closed_site)
        page = eyes.open(f"{path}?theme={theme}")
        assert page.locator("form, main").count() and judged(page, axe) == []
        eyes.faults.clear()


def test_axe_finds_nothing_in_a_dialog_or_on_a_narrow_screen(look: Any, axe: str) -> None:
    eyes = look(390)
    eyes.answer_queries(ROWS, counts=COUNTED)
    for path in ("/", "/incidents/I1", "/jobs/15", "/explore", "/tail"):
        assert judged(eyes.open(path), axe) == [], path
    page = eyes.open("/")
    page.keyboard.press("?")
    assert page.locator("dialog[open]").count() == 1 and judged(page, axe) == []
    page = eyes.open("/incidents/I1")
    page.keyboard.press("/")
    page.wait_for_selector("#commands [role=option]")
    page.keyboard.press("ArrowDown")
    assert judged(page, axe) == []


def test_axe_finds_a_picture_without_words(look: Any, axe: str) -> None:
    page = look().open("/")
    page.evaluate("document.querySelector('main').append(Object.assign(new Image(), {src: '/static/icon.svg'}))")
    assert [text.split(":")[0] for text in judged(page, axe)] == ["image-alt"]
