from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ingest_server import IngestServer
from made_host import Host
from running_agent import end_all

from parsers.engine import LineParser
from parsers.patterns import load


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def server() -> Iterator[IngestServer]:
    """A stub for the service; agents that a test started end with it."""
    started = IngestServer().start()
    yield started
    started.close()
    end_all()


@pytest.fixture(scope="session")
def parser() -> LineParser:
    return LineParser(load())
