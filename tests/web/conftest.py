"""The hand-made store behind a test client, and a real server with a real browser."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import around
import fixture
import pytest
from anyio.from_thread import start_blocking_portal
from fastapi.testclient import TestClient
from serving import serve

from web.app import create_app

SCREENSHOTS = Path(__file__).parents[2] / "test-artifacts" / "screenshots"
MANY = 12_000
#: The first that is there is used. The headless shell is the same engine without the windows, tabs and services of a
#: browser for people, which cost CPU for each page that a test opens.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session", autouse=True)
def _one_event_loop() -> Iterator[None]:
    """The requests of all test clients run in one event loop, as a server's do. A client left alone starts a thread and a
    loop for each request, which takes longer than many a request."""
    with start_blocking_portal() as portal:
        TestClient.portal = portal
        yield
        TestClient.portal = None


@pytest.fixture(scope="session")
def client() -> TestClient:
    return TestClient(create_app(fixture.build()), raise_server_exceptions=False)


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    yield from serve(fixture.build())


@pytest.fixture(scope="session")
def dense_site() -> Iterator[str]:
    yield from serve(fixture.build(MANY))


@pytest.fixture(scope="session")
def wide_site() -> Iterator[str]:
    store = fixture.build()
    around.wide(store, 16)
    yield from serve(store)


@pytest.fixture(scope="session")
def browser_thread() -> Iterator[ThreadPoolExecutor]:
    """The thread of the browser and its tests.

    Playwright keeps an event loop running in the thread that starts it. In the main thread, every later test that runs
    its own loop would fail.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="browser") as thread:
        yield thread


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """A test with a browser runs in the browser's thread."""
    if "browser" in pyfuncitem.fixturenames:
        thread, function = pyfuncitem.funcargs["browser_thread"], pyfuncitem.obj
        pyfuncitem.obj = lambda **arguments: thread.submit(function, **arguments).result()
        try:
            return (yield)
        finally:
            pyfuncitem.obj = function
    return (yield)


@pytest.fixture(scope="session")
def browser(browser_thread: ThreadPoolExecutor) -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("no chromium on this machine")
    play = browser_thread.submit(sync_api.sync_playwright().start).result()
    options = ["--no-sandbox", "--disable-gpu", "--renderer-process-limit=1"]
    found = browser_thread.submit(play.chromium.launch, executable_path=program, args=options).result()
    yield found
    browser_thread.submit(found.close).result()
    browser_thread.submit(play.stop).result()


@pytest.fixture(scope="session")
def context(browser: Any, browser_thread: ThreadPoolExecutor, site: str) -> Any:
    """Where each test opens its page.

    A page of a new context starts a process that renders it, which costs more CPU than the page itself. The
    page that stays open here keeps one process for all of them.
    """

    def start() -> Any:
        opened = browser.new_context()
        opened.new_page().goto(f"{site}/static/css/tokens.css")
        return opened

    return browser_thread.submit(start).result()


class Eyes:
    """A page that records its errors."""

    def __init__(self, context: Any, site: str, width: int = 1440) -> None:
        self.page = context.new_page()
        self.page.set_viewport_size({"width": width, "height": 900})
        self.site, self.faults = site, []
        self.page.on("console", lambda stated: self.faults.append(stated.text) if stated.type == "error" else None)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda dialog: self.faults.append(f"dialog {dialog.message}"))

    def open(self, path: str, *, axis: bool = False) -> Any:
        self.page.goto(self.site + path, wait_until="networkidle")
        if axis:
            self.page.wait_for_selector("#axis[data-ready=yes]")
        return self.page

    def answer_queries(self, body: object, status: int = 200, counts: object = None) -> None:
        """Every query of this page gets this answer: the hand-made store has none of the views that KQL reads.

        ``counts``: what its overview gets. New lines are one."""
        said = 'event: line\ndata: {"Time": "2026-11-21T00:30:52Z", "Host": "gpu02", "Message": "a line"}\n\n'
        self.page.route("**/api/v1/tail?*", lambda route: route.fulfill(content_type="text/event-stream", body=said))
        counted = json.dumps(counts or {})
        self.page.route(
            "**/api/v1/query/overview", lambda route: route.fulfill(content_type="application/json", body=counted)
        )
        kind = "application/json" if status == 200 else "application/problem+json"
        text = json.dumps(body)
        self.page.route("**/api/v1/query", lambda route: route.fulfill(status=status, content_type=kind, body=text))

    def close(self) -> None:
        """Closes the page; the next one finds nothing that this one stored."""
        self.page.evaluate("location.protocol === 'http:' && localStorage.clear()")
        self.page.context.clear_cookies()
        kept = self.page.context.pages[0]
        self.page.close()
        # An answer that came between the two lines above may have stored something again.
        kept.evaluate("localStorage.clear()")

    def shoot(self, name: str) -> None:
        """A screenshot for people, if FAULTLINE_SCREENSHOTS is set: no test reads it."""
        if not os.environ.get("FAULTLINE_SCREENSHOTS"):
            return
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


@pytest.fixture
def look(context: Any, browser_thread: ThreadPoolExecutor, site: str) -> Iterator[Any]:
    opened: list[Eyes] = []

    def make(width: int = 1440, at: str = site) -> Eyes:
        opened.append(Eyes(context, at, width))
        return opened[-1]

    yield make
    for eyes in opened:
        browser_thread.submit(eyes.close).result()
        assert eyes.faults == []
