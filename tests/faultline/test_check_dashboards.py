"""``faultline check`` names what is wrong with a site's dashboards and saved queries: file, line, what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from faultline import checking
from faultline.config import validate


def test_files_of_a_site_are_read_and_their_queries_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ours.kql").write_text("// title: Ours\nLogs\n| where Hots == 1\n")
    (tmp_path / "ours.toml").write_text('title = "Ours"\n[[panel]]\nsaved = "ours"\n[[panel]]\nsaved = "none"\n')
    settings = validate({"dashboards": [str(tmp_path)], "queries": [str(tmp_path)]}, "test")
    wrong = checking._dashboards(settings)
    query, panel, dashboard = (tmp_path / name for name in ("ours.kql", "ours.toml", "ours.kql"))
    assert wrong == [
        f"{query}:3: unknown name 'Hots'; did you mean Host?",
        f"{panel}:4: panel 2 (none): there is no saved query 'none'; see the names on the page Explore",
        f"{dashboard}:3: panel 1 (Ours): unknown name 'Hots'; did you mean Host?",
    ]
    told = capsys.readouterr().out
    assert "1 of this site, 1 wrong" in told and "4 dashboards" in told and "2 wrong" in told


def test_what_is_shipped_is_sound(capsys: pytest.CaptureFixture[str]) -> None:
    assert checking._dashboards(validate({}, "test")) == []
    assert "3 dashboards" in capsys.readouterr().out
