"""Pages about something in progress update themselves, and keep the reader's zoom, choice and text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import fixture
import pytest
from fastapi.testclient import TestClient
from serving import serve

from web.app import create_app

#: Reloads the page's data at once, as returning to it does.
COME_BACK = "document.dispatchEvent(new Event('visibilitychange'))"


@pytest.fixture
def open_incident() -> Iterator[tuple[fixture.FakeStore, str]]:
    """I1 is in progress: no end, a provisional verdict."""
    store = fixture.build()
    change(store, status="provisional")
    store.con.execute("UPDATE model.incidents SET \"end\" = NULL WHERE incident_id = 'I1'")
    server = serve(store)
    yield store, next(server)
    server.close()


def change(store: fixture.FakeStore, **members: Any) -> None:
    (text,) = store.con.execute("SELECT document FROM model.incidents WHERE incident_id = 'I1'").fetchone() or ("{}",)
    document = {**json.loads(text), **members}
    store.con.execute("UPDATE model.incidents SET document = ? WHERE incident_id = 'I1'", [json.dumps(document)])


def polled(store: fixture.FakeStore, path: str) -> bool:
    return "data-poll=" in TestClient(create_app(store)).get(path).text


def test_only_what_may_change_is_asked_for_again() -> None:
    store = fixture.build()
    change(store, status="final")
    assert [polled(store, path) for path in ("/incidents/I1", "/jobs/16", "/", "/?to=2026-11-22", "/explore")] == [
        False, False, True, False, False,
    ]  # fmt: skip
    change(store, status="provisional")
    assert polled(store, "/incidents/I1")


@pytest.mark.browser
def test_an_incident_under_way_is_kept_current_under_the_readers_zoom(
    look: Any, open_incident: tuple[Any, str]
) -> None:
    store, at = open_incident
    page = look(at=at).open("/incidents/I1", axis=True)
    assert "so far" in page.inner_text(".facts") and "Still open" in page.inner_text(".headrow")
    page.keyboard.press("w")
    page.keyboard.press("w")
    page.keyboard.press("j")
    page.locator("#table summary").click()
    shown = page.evaluate(
        "(a => [a.iso(a.scale.lo), a.iso(a.scale.hi), a.state.selected, a.data.marks.length])(axis.axis)"
    )
    page.wait_for_url("**from=*")  # the address follows the zoom and the choice a moment later
    page.wait_for_url("**event=e1*")
    address = page.url
    (text,) = store.con.execute("SELECT document FROM model.incidents WHERE incident_id = 'I1'").fetchone()
    events = json.loads(text)["events"]
    # An earlier cause becomes known: T0 moves, what is shown must not.
    earlier = {**events[0], "id": "NEW", "time": "2026-11-21T00:30:01Z", "role": "cause", "message": "the first of all"}
    change(store, title="Now it is known.", events=[earlier, *events])
    page.evaluate(COME_BACK)
    page.wait_for_selector("h1:text-is('Now it is known.')")
    page.wait_for_selector(f"canvas[aria-label*='with {shown[3] + 1} events']")
    again = page.evaluate("(a => [a.iso(a.scale.lo), a.iso(a.scale.hi), a.state.selected])(axis.axis)")
    assert again == shown[:3] and page.url == address
    assert page.locator("#table").get_attribute("open") is not None
    page.keyboard.press("j")  # the chain was replaced and the keys still work
    assert page.locator("#chain > li.on").count() == 1


@pytest.mark.browser
def test_words_that_somebody_writes_are_not_taken_away(look: Any, open_incident: tuple[Any, str]) -> None:
    store, at = open_incident
    page = look(at=at).open("/incidents/I1", axis=True)
    page.locator("#chain .file").first.click()
    page.wait_for_selector("#chain .ctx")
    change(store, title="Another title.")
    page.evaluate(COME_BACK)
    page.wait_for_selector("h1:text-is('Another title.')")
    assert page.locator("#chain .ctx").count() == 1


@pytest.mark.browser
def test_a_page_that_cannot_be_kept_current_says_so(look: Any, open_incident: tuple[Any, str]) -> None:
    _, at = open_incident
    eyes = look(at=at)
    page = eyes.open("/")
    page.route("**/*", lambda route: route.abort())
    page.evaluate(COME_BACK)
    page.wait_for_selector("#stale", state="visible")
    assert "not current since" in page.inner_text("#stale")
    page.unroute("**/*")
    page.evaluate(COME_BACK)
    page.wait_for_selector("#stale", state="hidden")
    eyes.faults.clear()  # the console reports the requests that were refused


@pytest.mark.browser
def test_the_counts_above_a_list_follow_its_rows(look: Any, open_incident: tuple[Any, str]) -> None:
    store, at = open_incident
    page = look(at=at).open("/")
    chips = page.locator("nav[aria-label='Filter by severity']")
    assert "Impact 1" in chips.inner_text()
    store.con.execute("UPDATE model.incidents SET severity = 'degraded' WHERE incident_id = 'I1'")
    page.evaluate(COME_BACK)
    page.wait_for_selector("nav[aria-label='Filter by severity'] a:text-is('Degraded 1')")
    assert "Impact 0" in chips.inner_text()
