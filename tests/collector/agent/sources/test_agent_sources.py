"""The extension point for sources: one file each, listed, explained; and a site's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_host import rows

from collector.agent.runner import Runner
from collector.agent.source import Context
from collector.agent.sources import BUILT_IN, kinds, netlink


def test_every_source_has_one_name_and_explains_itself() -> None:
    for name, kind in kinds().items():
        assert kind.name == name and name in BUILT_IN
        assert kind.reads and kind.costs and kind.blind_to and kind.role in ("node", "controller")


def test_every_file_with_a_source_is_listed() -> None:
    import importlib

    folder = Path(netlink.__file__).parent
    modules = [f"collector.agent.sources.{path.stem}" for path in folder.glob("[a-z]*.py")]
    assert {m for m in modules if hasattr(importlib.import_module(m), "SOURCE")} == set(BUILT_IN.values())


def test_a_site_adds_a_source_with_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site_pump.py").write_text(
        "from collector.agent import wire\nfrom collector.agent.source import Reading, SourceKind\n"
        "class Pump:\n"
        "    interval = 1.0\n"
        "    def open(self, positions): pass\n"
        "    def poll(self):\n        yield Reading(wire.record(stream='pump', raw='pump stopped'), 1)\n"
        "    def close(self): pass\n"
        "SOURCE = SourceKind('pump', lambda context, options: Pump(), {'speed': 3}, 'a pump', 'nothing', 'its colour')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from collector.agent.config import validate

    enabled = validate(
        {"server": "http://x", "plugins": ["site_pump"], "sources": {"pump": {"speed": 4}}}, "t"
    ).enabled()
    kind, options = enabled["pump"]
    assert options == {"speed": 4}
    assert rows(Runner(kind, options, Context(), {}).poll()) == [{"stream": "pump", "raw": "pump stopped"}]
