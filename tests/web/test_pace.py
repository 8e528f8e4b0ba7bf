"""Step time from a job's output: each point is what was printed, each rank stands against the others, gaps stay gaps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import fixture
import pytest
from fastapi.testclient import TestClient
from serving import serve
from test_web_job import printed

from web.app import create_app
from web.pace import picture

#: Job 15 ran from here for 39 s; a line is printed each second.
START, LINES = datetime.fromisoformat("2026-11-21T00:30:13"), 38
FILE = "jobs/15/stdout"


def reports(label: str, seconds: float) -> list[str]:
    return [f"{label}iter {n} | loss 2.1 | iter_time {seconds:.2f}s | lr 3e-4" for n in range(LINES)]


@pytest.fixture(scope="module")
def printing_site() -> tuple[fixture.FakeStore, TestClient]:
    store = fixture.build()
    return store, TestClient(create_app(store))


@pytest.fixture
def store(printing_site: tuple[fixture.FakeStore, TestClient]) -> Iterator[fixture.FakeStore]:
    """Without what the test before printed."""
    yield printing_site[0]
    printing_site[0].con.execute(
        "DELETE FROM raw.logs WHERE source = 'job_stdout' AND regexp_matches(message, 'iter|step')"
    )


@pytest.fixture
def client(store: fixture.FakeStore, printing_site: tuple[fixture.FakeStore, TestClient]) -> TestClient:
    return printing_site[1]


def of(client: TestClient) -> Any:
    return client.get("/api/v1/jobs/15/pace").json()


def test_a_rank_that_is_slower_than_the_others_comes_first(store: fixture.FakeStore, client: TestClient) -> None:
    for rank in range(4):
        first = 1 + LINES * rank
        begun = START - timedelta(seconds=first - 1)
        printed(store, 15, FILE, reports(f"{rank}: ", 0.8 if rank == 2 else 0.4), begun, first)
    found = of(client)
    assert [one["name"] for one in found["ranks"]] == ["rank 2", "rank 0", "rank 1", "rank 3"]
    assert [(one["ratio"], one["median_s"], one["reports"]) for one in found["ranks"]][:2] == [
        (2, 0.8, LINES),
        (1, 0.4, LINES),
    ]
    assert found["ranks_total"] == 4 and {tuple(point[1:]) for point in found["all"]["points"]} == {(0.4, 0.4, 0.8)}
    text = client.get("/jobs/15").text
    # "0 to 0.8 s" was the picture's scale, and no rank printed 0.
    assert "as the job itself printed it: 0.4 s to 0.8 s, drawn from 0." in re.sub(r"\s+", " ", text)
    assert "2.00 × the median" in text and text.index("rank 2") < text.index("rank 0")


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ({FILE: "[rank3]: "}, ["rank 3"]),
        ({"jobs/15/out.0": "", "jobs/15/out.1": ""}, ["15/out.0", "15/out.1"]),
        ({"jobs/15/a": "[default1]:", "jobs/15/b": "[default1]:"}, ["local rank 1, 15/a", "local rank 1, 15/b"]),
        ({"jobs/15/out": "7: ", "jobs/15/err": "7: "}, ["rank 7"]),
    ],
)
def test_who_reports(files: dict[str, str], names: list[str], store: fixture.FakeStore, client: TestClient) -> None:
    for file, label in files.items():
        printed(store, 15, file, reports(label, 0.4), START)
    found = of(client)
    assert [one["name"] for one in found["ranks"]] == names
    assert all(one["ratio"] == (1 if len(names) > 1 else None) for one in found["ranks"])


def test_the_axis_has_a_lane_of_what_a_hurt_job_printed(store: fixture.FakeStore, client: TestClient) -> None:
    seconds = [0.4] * 19 + [1.25] * 19
    printed(store, 15, FILE, [f"step {n} step_time: {value} s" for n, value in enumerate(seconds)], START)
    axis = client.get("/api/v1/axis/I1").json()
    (series,) = [one for one in axis["series"] if one["name"] == "step time"]
    (lane,) = [one for one in axis["lanes"] if one["id"] == series["lane"]]
    assert (lane["label"], lane["layer"], lane["sub"]) == ("15  step time", "job", "s")
    assert series["zero"] is True, "a tenth more must not look like a rise from nothing"
    drawn = {(low, high) for piece in series["pieces"] for _, low, high in piece}
    assert drawn <= {(0.4, 0.4), (0.4, 1.25), (1.25, 1.25)} and (0.4, 0.4) in drawn and (1.25, 1.25) in drawn


def test_a_job_that_reports_no_pace_has_no_panel_and_no_lane(store: fixture.FakeStore, client: TestClient) -> None:
    printed(store, 15, FILE, ["loading data", "iter 3 begins", "batch of 64 per step"], START)
    assert of(client) == {"all": None, "ranks": [], "ranks_total": 0}
    assert "Step time" not in client.get("/jobs/15").text and client.get("/api/v1/axis/I1").json()["series"] == []


def test_nothing_is_drawn_over_a_time_without_reports() -> None:
    times = [0, 10, 20, 30, 3600, 3610, 3620]
    points = [[START + timedelta(seconds=s), 0.4, 0.4, 0.4] for s in times]
    rank = {"name": "rank 0", "ratio": None, "median_s": 0.4, "reports": 7, "points": [point[:2] for point in points]}
    drawn = picture({"all": {"points": points, "median_s": 0.4}, "ranks": [rank], "ranks_total": 1})
    assert drawn is not None and drawn["usual"].count("M") == 2 and drawn["band"] == "" and drawn["drawn"] == []


@pytest.fixture
def served(store: fixture.FakeStore) -> Iterator[str]:
    printed(store, 15, FILE, reports("", 0.4), START)
    yield from serve(store)


def test_the_panel_and_the_axis_have_one_cursor(served: str, look: Any, browser: Any) -> None:
    """Moving over one marks the same moment in the other, also while the cursor of the axis is pinned."""
    page = look(at=served).open("/jobs/15", axis=True)
    ask = "() => document.getElementById('axis').axis"
    picture_ = page.locator(".paces svg").first
    box = picture_.bounding_box()
    at = "() => document.querySelector('.paces .at').getAttribute('d')"
    assert page.evaluate(at) in ("", None) or page.evaluate(at).startswith("M")
    first, last = (page.locator(".paces").get_attribute(name) for name in ("data-first", "data-last"))
    picture_.hover(position={"x": box["width"] / 2, "y": 20})
    middle = page.evaluate(f"() => ({ask})().iso(({ask})().state.cursor)")
    moments = [datetime.fromisoformat(one.removesuffix("Z")) for one in (first, last, middle)]
    assert abs((moments[2] - moments[0]) / (moments[1] - moments[0]) - 0.5) < 0.01
    assert page.evaluate(at).startswith("M300") or page.evaluate(at).startswith("M299")
    marked, shown = page.evaluate(at), page.locator("#pace-at").text_content()
    for pinned in ("false", "true"):
        page.evaluate(f"() => {{ ({ask})().state.pinned = {pinned}; }}")
        canvas = page.locator("#axis canvas")
        size = canvas.bounding_box()
        canvas.hover(position={"x": size["width"] * (0.4 if pinned == "true" else 0.5), "y": 60})
        now = page.evaluate(f"() => {{ const a = ({ask})(); return a.iso(a.state.ghost); }}")
        expected = 3 + 594 * ((datetime.fromisoformat(now.removesuffix("Z")) - moments[0]) / (moments[1] - moments[0]))
        drawn = page.evaluate(at)
        inside = 3 <= expected <= 597
        assert (abs(float(drawn[1:].split(" ")[0]) - expected) < 0.5) if inside else drawn == "", (pinned, expected)
        assert page.locator("#pace-at").text_content() == (f"at {now[11:19]}" if inside else "")
        assert inside and drawn != marked, "what is compared moves"
        marked = drawn
    assert shown == f"at {middle[11:19]}"
