from __future__ import annotations

from pathlib import Path

import pytest
from made_host import Host

from parsers.engine import LineParser
from parsers.patterns import load


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture(scope="session")
def parser() -> LineParser:
    return LineParser(load())
