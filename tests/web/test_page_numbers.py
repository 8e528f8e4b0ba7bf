"""Every number that a page states is the JSON API's, or what KQL counts; the page of an incident is in ``test_pictures.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import fixture
import pytest
from compared import Asked, Page
from fastapi.testclient import TestClient
from list_numbers import of_lists
from object_numbers import of_objects

from collector.ingest import Ingest
from correlator.engine import correlate
from faultline.config import validate
from faultline.demo import CAPTURE
from faultline.service import Service, build_app
from store import open_store
from tests.correlator.engine.test_liars import SCENARIOS, unpacked
from tests.line_parser import line_parser
from web.app import create_app

SCENARIO = SCENARIOS / "medium-12" / "logs.tar.xz"


def wrong(asked: Asked, *parts: Callable[[Asked], Iterable[Page]]) -> list[str]:
    return [one for part in parts or (of_lists, of_objects) for page in part(asked) for one in page.wrong]


@pytest.mark.parametrize("part", [of_lists, pytest.param(of_objects, marks=pytest.mark.long)])
def test_a_hand_made_site(part: Callable[[Asked], Iterable[Page]]) -> None:
    asked = Asked(TestClient(create_app(fixture.shared())), kql=False, whole=False)
    assert wrong(asked, part) == []


@pytest.mark.long
@pytest.mark.parametrize("whole", [False, True])
def test_the_demo(whole: bool, tmp_path: Path) -> None:
    with open_store(None) as store:
        Ingest(store, parser=line_parser()).run([CAPTURE])
        correlate(store)
        client = TestClient(build_app(Service(validate({"data": str(tmp_path)}, "test"), store)))
        assert wrong(Asked(client, kql=True, whole=whole)) == []


@pytest.mark.long
@pytest.mark.skipif(not SCENARIO.exists(), reason="the simulated cluster lies outside the repository")
def test_a_simulated_cluster(tmp_path: Path) -> None:
    with open_store(None) as store, unpacked(SCENARIO) as tree:
        Ingest(store, parser=line_parser()).run([tree])
        correlate(store)
        client = TestClient(build_app(Service(validate({"data": str(tmp_path)}, "test"), store)))
        assert wrong(Asked(client, kql=True)) == []
