"""Every number that a page states is the JSON API's, or what KQL counts; the page of an incident is in ``test_pictures.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fixture
import pytest
from compared import Asked
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


def wrong(asked: Asked) -> Iterator[str]:
    for compared in (of_lists, of_objects):
        for page in compared(asked):
            yield from page.wrong


def test_a_hand_made_site() -> None:
    asked = Asked(TestClient(create_app(fixture.shared())), kql=False, whole=False)
    assert list(wrong(asked)) == []


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_demo(whole: bool, tmp_path: Path) -> None:
    with open_store(None) as store:
        Ingest(store, parser=line_parser()).run([CAPTURE])
        correlate(store)
        client = TestClient(build_app(Service(validate({"data": str(tmp_path)}, "test"), store)))
        assert list(wrong(Asked(client, kql=True, whole=whole))) == []


@pytest.mark.long
@pytest.mark.skipif(not SCENARIO.exists(), reason="the simulated cluster lies outside the repository")
def test_a_simulated_cluster(tmp_path: Path) -> None:
    with open_store(None) as store, unpacked(SCENARIO) as tree:
        Ingest(store, parser=line_parser()).run([tree])
        correlate(store)
        client = TestClient(build_app(Service(validate({"data": str(tmp_path)}, "test"), store)))
        assert list(wrong(Asked(client, kql=True))) == []
