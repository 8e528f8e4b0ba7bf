"""What the demo prints of its store is what the page of sources counts."""

from __future__ import annotations

import re
import socket

import pytest

from collector.ingest import Ingest
from faultline import demo
from faultline.failure import CommandError
from store import open_store
from web.reading import Reader
from web.sources import document


def test_the_demo_says_how_many_of_the_lines_it_read_are_those_that_sources_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It said "Loaded 3,283 lines", most of them of documents, and /sources counted 417."""
    demo.show("127.0.0.1:0", once=True)
    shown = capsys.readouterr().out
    read, stored = (int(text.replace(",", "")) for text in re.findall(r"([\d,]+) (?:log )?lines\b", shown)[:2])
    with open_store(None) as store:
        report = Ingest(store).run([demo.CAPTURE])
        found = document(None, Reader(store), search=None, limit=1000, cursor=None, outputs=True)
    assert read == sum(file.lines for file in report.files)
    assert stored == sum(row["lines"] for row in found["sources"]) < read


def test_a_taken_address_is_refused_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "Ingest", None)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(CommandError, match=f"{taken}: cannot listen"):
            demo.show(taken, once=False)
