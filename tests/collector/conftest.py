"""A spool in its own folder, and the HTTP receivers in front of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.intake import Intake
from collector.spool import Spool


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    opened = Spool(tmp_path, min_free_bytes=0)
    yield opened
    opened.close()


@pytest.fixture
def intake(spool: Spool) -> Intake:
    return Intake(spool)
