"""The back-test shows what other edges would have concluded, and writes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from correlator.engine import correlate
from correlator.learning.backtest import lines, replay
from faultline.cli import app
from store import open_store
from store.door import Door
from tests.correlator.rows import CAPTURES, answer, concluded, rows_of

FLAP = next(c for c in CAPTURES if c.name == "mgmt_flap_long")


def write(folder: Path, text: str) -> Path:
    path = folder / "proposed.toml"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def loaded() -> Iterator[Door]:
    """A back-test writes nothing, so all tests share it."""
    with concluded(FLAP) as store:
        yield store


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in a folder, for the command."""
    folder = tmp_path_factory.mktemp("loaded") / "data"
    with open_store(folder) as store:
        store.append(rows_of(FLAP))
        correlate(store)
    return folder


def test_without_its_edge_the_link_is_no_longer_blamed(loaded: Door, tmp_path: Path) -> None:
    before = answer(loaded)
    found = replay(loaded, [write(tmp_path, '[[edge]]\nid = "E03"\ndisabled = true\n')])
    (was, now) = found.verdicts["15"]
    assert (was.event, was.host) == ("nic.link_down", "gpu02") and "E03" in was.edges
    assert now.event != "nic.link_down"
    assert found.vanished or found.appeared
    reported = lines(found)
    assert any(line.startswith("verdict   15: infra.network nic.link_down (eth0 of gpu02)") for line in reported)
    assert "1 change" in reported[-1]
    assert answer(loaded) == before, "a back-test must write nothing"


def test_the_same_edges_say_the_same(loaded: Door, tmp_path: Path) -> None:
    found = replay(loaded, [write(tmp_path, "")])
    assert not found and found.same >= 1


def test_only_the_asked_stretch_of_time(loaded: Door, tmp_path: Path) -> None:
    proposed = [write(tmp_path, '[[edge]]\nid = "E03"\ndisabled = true\n')]
    assert not replay(loaded, proposed, until=datetime(2001, 1, 1))
    assert not replay(loaded, proposed, since=datetime(2099, 1, 1))


def test_the_command(data: Path, tmp_path: Path) -> None:
    runner = CliRunner()
    proposed = write(tmp_path, '[[edge]]\nid = "E03"\ndisabled = true\n')
    asked = ["check", "--replay", "--data", str(data)]
    differs = runner.invoke(app, [*asked, "--edges", str(proposed)], standalone_mode=False)
    assert differs.return_value == 1 and "verdict   15:" in differs.output
    same = runner.invoke(app, [*asked, "--edges", str(write(tmp_path, ""))], standalone_mode=False)
    assert same.return_value == 0 and "0 change" in same.output


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        ("[[edge]]\nid = 'X'\ncause = ['link.outage']\n", "missing key"),
        ("not toml [", "proposed.toml"),
        (None, "no such edge file"),
    ],
)
def test_a_wrong_file_is_named(data: Path, tmp_path: Path, edges: str | None, words: str) -> None:
    from faultline.checking import back_test
    from faultline.failure import CommandError

    path = tmp_path / "absent.toml" if edges is None else write(tmp_path, edges)
    with pytest.raises(CommandError, match=words):
        back_test(None, data, [path], None, None)


def test_it_is_json_serialisable_knowledge(loaded: Door, tmp_path: Path) -> None:
    found = replay(loaded, [write(tmp_path, '[[edge]]\nid = "E03"\nprior = 0.5\ncause = ["link.outage"]\neffect = ["node.down"]\n'
                                            'scope = "same node"\nwindow = "[1s, 5s]"\ntext = "too narrow"\n')])  # fmt: skip
    assert "15" in found.verdicts
    json.dumps([i["id"] for i in found.appeared])
