"""The numbers on the pages, read from their HTML, against the JSON API and KQL: each is compared or quoted, none is skipped.

A page's numbers that are counted, summed or rounded are compared one by one. Whatever else on the page has a digit has to
occur in a text or a moment of the API's answers; a number that does neither is reported as ``nobody compares``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar
from urllib.parse import quote

from fastapi.testclient import TestClient
from told_numbers import Element, read

from web.shaping import clock, day, moment, number, short_file, stamp

Row = dict[str, Any]
T = TypeVar("T")
_TIMES = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\d{1,2} [A-Z][a-z]{2} \d{4}|\d\d:\d\d:\d\d(?:\.\d+)?")
_NUMBER = re.compile(r"[\d.,]+")
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT")
#: No text of these is seen.
UNSEEN = {"script", "style", "title"}


def words(value: object) -> str:
    """A text as a page has it: its words, parted by one space."""
    return re.sub(r"\s+", " ", str(value)).strip()


class Asked:
    """The JSON API and KQL over one site."""

    def __init__(self, client: TestClient, *, kql: bool, whole: bool = True) -> None:
        self.client, self.has_kql, self._whole = client, kql, whole
        self._kept: dict[str, Any] = {}

    def some(self, things: Iterable[T], most: int) -> list[T]:
        """All of them, or the first if the site is not looked at as a whole."""
        return list(things) if self._whole else list(things)[:most]

    def json(self, path: str) -> Any:
        if path not in self._kept:
            answer = self.client.get(f"/api/v1{path}")
            assert answer.status_code == 200, (path, answer.text)
            self._kept[path] = answer.json()
        return self._kept[path]

    def all(self, name: str, path: str = "") -> list[Row]:
        """Every page of a list."""
        rows, after = list[Row](), ""
        path = path or f"/{name}?limit=500"
        while after is not None:
            found = self.json(path + (f"&cursor={quote(after)}" if after else ""))
            rows += found[name]
            after = found["next"]
        return rows

    def kql(self, query: str) -> list[list[Any]] | None:
        """The rows of a query; None on a site without the views that KQL reads."""
        if not self.has_kql:
            return None
        answer = self.client.post("/api/v1/query", json={"query": query})
        assert answer.status_code == 200, answer.text
        rows: list[list[Any]] = answer.json()["rows"]
        return rows


class Page:
    """One page, with what was found wrong on it and what was compared."""

    def __init__(self, asked: Asked, path: str) -> None:
        answer = asked.client.get(path, headers={"accept": "text/html"})
        assert answer.status_code == 200, (path, answer.text[:300])
        self.asked, self.path, self.wrong = asked, path, list[str]()
        self.main = read(answer.text).one("main")
        self._compared: set[int] = set()
        self._texts, self._times = list[str](), set[str]()

    def says(self, element: Element, expected: object, what: str = "") -> None:
        """The text of an element has to be this."""
        self._compared.add(id(element))
        if words(element.text) != words(expected):
            self.wrong.append(f"{self.path}: {what or element.name} {element.text!r}, not {words(expected)!r}")

    def passes(self, element: Element) -> None:
        """An element that the caller has compared by itself."""
        self._compared.add(id(element))

    def counts(self, what: str, number_of: int, query: str) -> None:
        """KQL has to count as many."""
        rows = self.asked.kql(query)
        if rows is not None and rows != [[number_of]]:
            self.wrong.append(f"{self.path}: {what} {number_of}, and KQL counts {rows}")

    def panel(self, title: str) -> Element | None:
        """The panel with this head."""
        panels = [one for one in self.main.all("section") if one.all("h2") and one.all("h2")[0].text == title]
        return panels[0] if panels else None

    def note(self, title: str, expected: object) -> None:
        """The words beside a panel's title."""
        panel = self.panel(title)
        if panel is None:
            self.wrong.append(f"{self.path}: no panel {title}")
        else:
            self.says(panel.one(class_="ph").one("span", class_="faint"), expected, title)

    def chips(self, expected: dict[str, str]) -> None:
        """The chips of a filter that begin or end with these words."""
        for one in self.main.all("a"):
            name = next((name for name in expected if re.fullmatch(rf"{name} [\d,]+|[\d,]+ {name}", one.text)), None)
            if name is not None:
                self.says(one, expected.pop(name), name)
        self.wrong += [f"{self.path}: no chip {name}" for name in expected]

    def rows(self, panel: Element, keyed: str = "") -> list[dict[str, Element]]:
        """A table's rows by the heads of their cells."""
        return [{str(cell.attributes.get("data-h") or n): cell for n, cell in enumerate(row.all("td"))}
                for body in panel.all("tbody") for row in body.all("tr")]  # fmt: skip

    def cells(self, row: dict[str, Element], expected: dict[str, object]) -> None:
        for head, value in expected.items():
            self.says(row[head], value, f"{next(iter(row.values())).text}, {head}")

    def quoted(self, *answers: Any) -> None:
        """What is neither compared nor in these answers of the API, and has a digit, is wrong."""
        for leaf in _leaves(answers):
            if isinstance(leaf, str) and MOMENT.match(leaf) and (when := moment(leaf)):
                self._times |= {stamp(when), day(when), *(clock(when, n) for n in (0, 3, 6))}
            self._texts += [words(leaf), short_file(leaf)] if isinstance(leaf, str) else []
        known = "\n".join(self._texts)
        for text in self._uncompared(self.main):
            left = _TIMES.sub(lambda found: "" if found[0] in self._times else found[0], text)
            parts = [part.strip(" ,.:()") for part in ([left] if words(left) in known else re.split(r"\s", left))]
            lost = [part for part in parts if re.search(r"\d", part) and (_NUMBER.fullmatch(part) or part not in known)]
            if lost and words(text) not in self._texts and (_NUMBER.fullmatch(words(text)) or words(text) not in known):
                self.wrong.append(f"{self.path}: nobody compares {lost} in {words(text)!r}")

    def _uncompared(self, element: Element) -> Iterator[str]:
        if id(element) in self._compared or element.name in UNSEEN:
            return
        for one in element.children:
            if isinstance(one, Element):
                yield from self._uncompared(one)
            elif re.search(r"\d", one):
                yield one


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from (leaf for one in value.items() for leaf in _leaves(list(one)))
    elif isinstance(value, (list, tuple)):
        yield from (leaf for one in value for leaf in _leaves(one))
    else:
        yield value


def many(count: int, word: str) -> str:
    """ "1 step", "3 steps" """
    return f"{number(count)} {word}{'s' if count != 1 else ''}"
