"""Files of dashboards: the shipped ones answer on real captures, and a mistake is named with file, line and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from queries import kql, saved
from queries.dashboards import Dashboard, all_dashboards, faults
from queries.dashboards.reading import read

LIBRARY, _ = saved.library()
SHIPPED, WRONG = all_dashboards((), LIBRARY)


def test_the_shipped_ones_are_sound() -> None:
    assert sorted(SHIPPED) == ["cluster-now", "gpu-health", "network"] and WRONG == []
    assert faults(SHIPPED, kql.validate) == []


def written(folder: Path, text: str, name: str = "ours") -> Dashboard:
    file = folder / f"{name}.toml"
    file.write_text(text, encoding="utf-8")
    return read(file, LIBRARY)


GOOD = '[[panel]]\ntitle = "Lines"\nkql = "Logs | count"\n'


@pytest.mark.parametrize(
    ("entry", "reason", "do"),
    [
        ("kql = 'Logs'\nwdth = 6", "wdth: there is no such key", "known are title, description, kql"),
        ("kql = 'Logs'\nwidth = 13", "width: Input should be less than or equal to 12", "correct width"),
        ("kql = 'Logs'\nchart = 'pie'", "chart 'pie' is unknown; known are table, card", "correct the panel"),
        ("kql = 'Logs'\nsaved = 'jobs_running'", "needs either kql or saved", "correct the panel"),
        ("saved = 'jobs_runing'", "there is no saved query 'jobs_runing'", "page Explore"),
        ("saved = 'jobs_running'\nparameters = { x = 1 }", "has no parameter 'x'", "correct parameters"),
        ("saved = 'queue_waits'\nparameters = { since = 'x' }", "'x' is no timespan", "correct parameters"),
        ("kql = 'Jobs | render card'\nchart = 'card'", "the query has its own render", "keep either"),
    ],
)
def test_a_mistake_is_named_at_its_panel_and_the_others_stay(tmp_path: Path, entry: str, reason: str, do: str) -> None:
    found = written(tmp_path, f"title = 'Ours'\n{GOOD}\n[[panel]]\ntitle = 'Odd'\n{entry}\n")
    (problem,) = found.problems
    assert problem.line == 6 and reason in problem.reason and do in problem.do
    assert str(problem).startswith(f"{found.file}:6: panel 2 (Odd): ")
    assert found.panels[0].problem is None and found.panels[1].problem == problem and not found.panels[1].query


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("title = \n", 1, "is no TOML"),
        ("title = 'x'\n\n[[panel]\n", 3, "is no TOML"),
        ("title = 'x'\n", None, "has no list of panels"),
        (f"title = 'x'\nrefesh = '1m'\n{GOOD}", None, "refesh: there is no such key"),
        (f"title = 'x'\nrange = 'yesterday'\n{GOOD}", None, "range: String should match"),
        (GOOD, None, "title: Field required"),
    ],
)
def test_a_mistake_in_the_file_itself_is_named(tmp_path: Path, text: str, line: int | None, reason: str) -> None:
    found = written(tmp_path, text)
    assert found.problem and found.problem.line == line and reason in found.problem.reason and found.panels == ()


def test_an_error_of_a_query_has_its_line_in_the_file(tmp_path: Path) -> None:
    mark = "'''"
    text = f"""title = "Ours"
[[panel]]
title = "Text that looks like a panel"
description = {mark}
[[panel]]
{mark}
kql = "Logs | count"

[[panel]]
title = "Two"
width = 6
kql = {mark}
Logs
| where Hots == 1
{mark}

[[panel]]
title = "Three"
kql = "Logz"
"""
    found, problems = all_dashboards([written(tmp_path, text).file], LIBRARY)
    assert problems == []
    two, three = faults({"ours": found["ours"]}, kql.validate)
    assert (two.line, two.entry, two.do) == (14, "panel 2 (Two)", "did you mean Host?")
    assert (three.line, three.do) == (19, "did you mean Logs?")


def test_files_of_a_site_keep_to_names_that_are_free(tmp_path: Path) -> None:
    written(tmp_path, f"title = 'Mine'\n{GOOD}", "network")
    written(tmp_path, f"title = 'Ours'\n{GOOD}", "ours")
    written(tmp_path, f"title = 'Odd'\n{GOOD}", "Odd Name")
    found, problems = all_dashboards([tmp_path, tmp_path / "gone.toml"], LIBRARY)
    assert (found["ours"].title, found["ours"].origin, found["network"].title) == ("Ours", "this site", "Network")
    said = "\n".join(map(str, problems))
    assert "'network' is taken by" in said and "its name is no address" in said and "gone.toml: cannot be read" in said


def test_a_panel_carries_its_values_in_its_query(tmp_path: Path) -> None:
    text = 'title = "x"\n[[panel]]\nsaved = "metric_extremes"\nparameters = { metric = \'a"b\', most = 3 }\nchart = "barchart"\n'
    (panel,) = written(tmp_path, text).panels
    assert 'metric:string = "a\\"b", since:timespan = 1d, most:long = 3' in panel.query
    assert (
        panel.query.endswith("| render barchart")
        and panel.ranged == ("since",)
        and panel.title == "Extremes of a metric"
    )


def test_saved_queries_of_a_site_stand_beside_the_built_in_ones(tmp_path: Path) -> None:
    (tmp_path / "ours.kql").write_text("// title: Ours\n// group: Rack\nLogs | count\n")
    (tmp_path / "bare.kql").write_text("Logs | where Hots == 1\n")
    (tmp_path / "jobs_running.kql").write_text("Jobs\n")
    found, problems = saved.library([tmp_path])
    assert (found["ours"].title, found["ours"].group) == ("Ours", "Rack")
    assert (found["bare"].title, found["bare"].group) == ("Bare", saved.SITE_GROUP)
    assert len(found) == len(saved.names()) + 2 and "'jobs_running' is taken" in str(problems[0])
    (fault,) = saved.faults(found, kql.validate)
    assert str(fault) == f"{tmp_path / 'bare.kql'}:1: unknown name 'Hots'; did you mean Host?"
