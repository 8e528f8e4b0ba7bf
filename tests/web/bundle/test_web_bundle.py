"""A bundle in a browser without a network: opened from its file it draws, says nothing on the console, asks for nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fixture
import pytest
from fastapi.testclient import TestClient
from serving import LOOKS
from test_web_contrast import LARGE, MEASURE, TEXT
from triaged import FLAP, hit

from tests.correlator.rows import concluded
from web.app import create_app

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A bundle of a real incident, one of twelve thousand marks, and one whose every text is markup."""
    folder = tmp_path_factory.mktemp("bundles")
    found = {name: folder / f"{name}.html" for name in ("real", "dense", "hostile")}
    with concluded(FLAP) as store:
        client = TestClient(create_app(store))
        asked = {"state": "wrong", "author": "ada", "comment": "<img src=http://evil.invalid/x>"}
        client.post(f"/api/v1/incidents/{hit(store)}/state", json=asked)
        found["real"].write_bytes(client.get(f"/api/v1/incidents/{hit(store)}/bundle").content)
    for name, made, incident in (("dense", fixture.build(12_000), "I1"), ("hostile", fixture.build(), "I0")):
        found[name].write_bytes(TestClient(create_app(made)).get(f"/api/v1/incidents/{incident}/bundle").content)
    return found


@pytest.fixture
def offline(browser: Any, browser_thread: Any) -> Iterator[Callable[..., Any]]:
    """Opens a file in a browser without a network; at the end nothing was requested, reported or asked."""
    opened: list[tuple[Any, list[str]]] = []

    def make(path: Path, width: int = 1440, theme: str = "dark") -> Any:
        context = browser.new_context(
            offline=True, color_scheme=theme, viewport={"width": width, "height": 900}, accept_downloads=True
        )
        page, faults = context.new_page(), []
        page.on("console", lambda stated: faults.append(f"{stated.type}: {stated.text}"))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: faults.append(f"dialog {dialog.message}"))
        page.on("request", lambda asked: faults.append(asked.url) if asked.url != path.as_uri() else None)
        opened.append((context, faults))
        page.goto(path.as_uri())
        page.wait_for_selector("#axis[data-ready=yes]")
        return page

    yield make
    for context, faults in opened:
        browser_thread.submit(context.close).result()
        assert [fault for fault in faults if not fault.startswith("data:")] == []


@pytest.mark.parametrize(("theme", "width"), [LOOKS[1], pytest.param("dark", 1440, marks=pytest.mark.long), *LOOKS[2:]])
def test_a_bundle_fits_draws_and_can_be_read(
    offline: Callable[..., Any], files: dict[str, Path], theme: str, width: int
) -> None:
    for name in ("real", "hostile"):
        page = offline(files[name], width, theme)
        page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
        found = page.evaluate(MEASURE, [TEXT, LARGE])
        assert found["count"] > 10 and found["bad"] == [], name


def test_its_axis_chain_and_lines_move_together(offline: Callable[..., Any], files: dict[str, Path]) -> None:
    page = offline(files["real"])
    drawn = "(c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v))(axis.querySelector('canvas'))"
    assert page.evaluate(drawn)
    before = page.evaluate("[axis.axis.scale.lo, axis.axis.scale.hi]")
    page.keyboard.press("w")
    assert page.evaluate("[axis.axis.scale.lo, axis.axis.scale.hi]") != before
    page.keyboard.press("j")
    step = page.locator("#chain > li.on")
    assert step.count() == 1
    first = step.get_attribute("data-event")
    page.keyboard.press("j")
    assert page.locator("#chain > li.on").get_attribute("data-event") != first
    assert page.locator("#lines .ln.on").count() >= 1
    page.evaluate("axis.axis.pick('run:15')")  # the end of the job, on its own lane
    assert page.locator("#chain > li.on").get_attribute("data-mark") == "run:15"
    span = page.evaluate("axis.axis.scale.span")
    page.click("[data-axis=in]")
    assert page.evaluate("axis.axis.scale.span") < span


def test_its_data_can_be_saved(offline: Callable[..., Any], files: dict[str, Path]) -> None:
    page = offline(files["real"])
    manifest = json.loads(page.evaluate("document.getElementById('manifest').textContent"))
    for part in manifest["parts"]:
        with page.expect_download() as saved:
            page.click(f"a[download$='-{part['name']}']")
        body = Path(saved.value.path()).read_bytes()
        assert hashlib.sha256(body).hexdigest() == part["sha256"], part["name"]


def test_twelve_thousand_marks_fit(offline: Callable[..., Any], files: dict[str, Path]) -> None:
    page = offline(files["dense"])
    assert files["dense"].stat().st_size < 8 * 2**20
    assert page.evaluate("axis.axis.data.marks.length") == 4_000
    assert "Left out: The time axis" in page.inner_text("#main")
