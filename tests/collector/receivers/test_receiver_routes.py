"""Two receivers that serve one path: the second is reported and left out, so that no batch silently goes to another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint

import pytest

from collector.receivers import GROUP, all_receivers
from collector.receivers.base import Batch, Receiver, Request, Route
from parsers import extensions


def _accept(request: Request) -> Batch:
    raise NotImplementedError


def receiver(kind: str, *routes: tuple[str, str]) -> Receiver:
    return Receiver(kind, kind, lambda payload, into: None, tuple(Route((m,), p, _accept) for m, p in routes))


FIRST = receiver("site.first", ("POST", "/site/first"))
SECOND = {
    "another path": (receiver("site.second", ("POST", "/site/second")), None),
    "another method": (receiver("site.second", ("PUT", "/site/first")), None),
    "the same path": (receiver("site.second", ("POST", "/site/first")), "'/site/first' is served by the receiver 'site.first'"),
    "a pattern over it": (receiver("site.second", ("POST", "/site/.*")), "'/site/.*' is served by the receiver 'site.first'"),
    "one of ours": (receiver("site.second", ("POST", "/api/v1/ingest")), "is served by the receiver 'ingest'"),
}  # fmt: skip


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[Receiver]], None]]:
    """Makes these receivers the entry points of their group."""

    class Offered(EntryPoint):
        def load(self) -> Receiver:
            return by_name[self.name]

    by_name: dict[str, Receiver] = {}

    def install(receivers: list[Receiver]) -> None:
        by_name.update({one.kind: one for one in receivers})
        points = [Offered(name, name, GROUP) for name in by_name]
        monkeypatch.setattr(extensions, "entry_points", lambda group: points if group == GROUP else [])

    for name in ("_known", "_brought", "_warned"):
        monkeypatch.setattr(extensions, name, {})
    all_receivers.cache_clear()
    yield install
    all_receivers.cache_clear()


@pytest.mark.parametrize(("second", "problem"), SECOND.values(), ids=SECOND)
def test_one_path_has_one_receiver(
    second: Receiver, problem: str | None, installed: Callable[[list[Receiver]], None]
) -> None:
    installed([FIRST, second])
    found = all_receivers()
    assert found["site.first"] is FIRST
    assert ("site.second" in found) == (problem is None)
    reported = [one.problem for one in extensions.known() if one.problem]
    assert [problem is not None and problem in text for text in reported] == [True] * (problem is not None)
