"""Range and theme: every link and form of every page keeps them, and the control is only where it has an effect."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi.testclient import TestClient

KEPT = {"from": "2026-11-20T00:00:00Z", "to": "2026-11-22T00:00:00Z", "theme": "light"}
HTML = {"accept": "text/html"}
PAGES = ("/", "/incidents", "/incidents/I1", "/jobs", "/jobs/15", "/nodes", "/nodes/gpu02", "/repairs", "/fleet", "/fleet?incident=I1", "/reports", "/explore", "/dashboards", "/dashboards/network",
         "/sources", "/search?q=link", "/nowhere")  # fmt: skip


class Ways(HTMLParser):
    """The links and forms of a page: the addresses, and the fields."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.forms: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "a":
            self.links.append(found.get("href") or "")
        elif tag == "form":
            action = found.get("action") or ""
            self.forms.append({"action": action, **{k: v[0] for k, v in parse_qs(urlsplit(action).query).items()}})
        elif tag == "input" and self.forms:
            self.forms[-1][found.get("name") or ""] = found.get("value")


def ways(client: TestClient, path: str, **params: str) -> Ways:
    found = Ways()
    found.feed(text(client, path, **params))
    return found


def text(client: TestClient, path: str, **params: str) -> str:
    asked = dict(parse_qs(urlsplit(path).query))
    return client.get(urlsplit(path).path, params={**asked, **params}, headers=HTML).text


def to_pages(links: list[str]) -> list[str]:
    parts = [urlsplit(link) for link in links]
    return [link for link, part in zip(links, parts, strict=True) if part.path and not part.path.startswith("/api/")]


@pytest.mark.parametrize("path", PAGES)
def test_every_link_and_form_of_a_page_keeps_range_and_theme(client: TestClient, path: str) -> None:
    found = ways(client, path, **KEPT)
    links = to_pages(found.links)
    assert len(links) >= 7
    for link in links:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}
        assert KEPT.items() <= asked.items(), link
    for form in found.forms:
        # The range form writes another range; everything else is passed on unchanged.
        expected = KEPT if form["action"] else {"theme": "light"}
        assert expected.items() <= form.items(), form


def test_without_a_range_addresses_stay_bare(client: TestClient) -> None:
    assert "/incidents/I1" in ways(client, "/incidents").links
    assert "/jobs/15" in ways(client, "/jobs").links


def test_what_search_names_exactly_opens_with_the_range(client: TestClient) -> None:
    answer = client.get("/search", params={"q": "gpu02", **KEPT}, follow_redirects=False)
    assert answer.headers["location"].startswith("/nodes/gpu02?from=2026-11-20")


def test_search_looks_in_the_range_only(client: TestClient) -> None:
    assert "I1" in client.get("/search", params={"q": "lost its link", **KEPT}).text
    later = {"from": "2027-01-01T00:00:00Z", "to": "2027-01-02T00:00:00Z"}
    nothing = client.get("/search", params={"q": "lost its link", **later}).text
    assert "Nothing contains" in nothing and "1 Jan 2027" in nothing


def test_a_range_that_cannot_be_read_is_not_carried_on(client: TestClient) -> None:
    found = ways(client, "/jobs", **{"from": "soon", "theme": "light"})
    assert found.links and all("from=" not in link for link in found.links)
    assert any("theme=light" in link for link in found.links)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_shows_the_range_where_it_obeys_it(client: TestClient, path: str) -> None:
    obeys = path.split("?")[0] in {
        "/",
        "/incidents",
        "/jobs",
        "/nodes/gpu02",
        "/repairs",
        "/search",
        "/dashboards/network",
        "/explore",
    }
    assert ('class="joined range"' in text(client, path)) is obeys
