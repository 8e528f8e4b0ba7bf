"""Triage in a browser: lists are walked by key, every state can be read in both themes, and a button sets one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from serving import in_parts, serve
from test_web_contrast import LARGE, MEASURE, TEXT
from triaged import FLAP, four_more, hit

from tests.correlator.rows import concluded
from web.app import create_app

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def site_of_four() -> Iterator[tuple[str, str]]:
    """A site with incidents in every state, the resolved one with new evidence, and the newest of them."""
    with concluded(FLAP) as store:
        four_more(store)
        client = TestClient(create_app(store))
        for name, state in (("I-1", "acknowledged"), ("I-2", "resolved"), ("I-3", "wrong")):
            asked = {"state": state, "author": "ada", "assignee": "ben", "comment": "c" * 200}
            assert client.post(f"/api/v1/incidents/{name}/state", json=asked).status_code == 200
        with store.transaction() as connection:
            connection.execute("UPDATE kept.triage SET jobs = [] WHERE incident_id = 'I-2'")
        served = serve(store)
        yield next(served), hit(store)
        served.close()


@pytest.mark.parametrize(("theme", "width", "part"), in_parts(2))
def test_every_state_fits_and_can_be_read(
    look: Any, site_of_four: tuple[str, str], theme: str, width: int, part: slice
) -> None:
    eyes = look(width, site_of_four[0])
    for path in ("/incidents", "/incidents?group=root", "/incidents/I-1", "/incidents/I-2", "/incidents/I-3")[part]:
        page = eyes.open(f"{path}{'&' if '?' in path else '?'}theme={theme}")
        page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = !part.closest('.drop'); })")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
        eyes.shoot(f"triage-{path.strip('/').replace('/', '-').replace('?', '-')}-{width}-{theme}")
        found = page.evaluate(MEASURE, [TEXT, LARGE])
        assert found["count"] > 10 and found["bad"] == [], path


def test_a_list_is_walked_by_key_and_enter_opens(look: Any, site_of_four: tuple[str, str]) -> None:
    site, newest = site_of_four
    page = look(at=site).open("/incidents")
    focused = "decodeURIComponent(document.activeElement.pathname ?? '').split('/').pop()"
    shown = page.evaluate("[...document.querySelectorAll('.inc')].map(row => row.pathname.split('/').pop())")
    assert shown[0] == newest and len(shown) >= 5
    seen = []
    for key in ("j", "j", "k", "k", "k"):
        page.keyboard.press(key)
        seen.append(page.evaluate(focused))
    assert seen == [shown[0], shown[1], shown[0], shown[0], shown[0]]
    page.keyboard.press("j")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    assert page.evaluate("location.pathname") == f"/incidents/{shown[1]}"
    page = look(at=site).open("/jobs")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.closest('tbody tr') === document.querySelector('tbody tr')")


def test_a_button_of_the_page_sets_the_state(look: Any, site_of_four: tuple[str, str]) -> None:
    site, newest = site_of_four
    page = look(at=site).open(f"/incidents/{newest}")
    page.fill("#t-comment", "looking")
    page.fill("#t-author", "ada")
    with page.expect_navigation():
        page.click(".triage [value=acknowledged]")
    assert page.evaluate("location.hash") == "#triage"
    assert "looking" in page.inner_text("#tr") and "Acknowledged" in page.inner_text(".headrow")
    with page.expect_navigation():
        page.click(".acts [value=resolved]")
    assert "by ada" in page.inner_text("#tr li:first-child") and "Resolved" in page.inner_text(".headrow")
