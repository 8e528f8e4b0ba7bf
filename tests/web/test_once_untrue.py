"""What pages once showed that was not so, and that no other test holds (docs/incidents.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import fixture
import pytest
from around import DAY, insert
from fastapi.testclient import TestClient
from serving import serve
from test_axis_ends import T0, document, step
from test_web_browser import until
from test_web_visible import DRAWN

from web.app import create_app
from web.axis import document_range
from web.axis_ends import first_evidence, hops_of
from web.chain import table_rows

BEGAN = datetime.fromisoformat(DAY + "03:00:00")
NODES = [f"m{n:02d}" for n in range(9)]
#: Seconds: how late the line of a node without network came.
LATE_S = 251_616


def moment(seconds: float) -> str:
    return (BEGAN + timedelta(seconds=seconds)).isoformat(timespec="microseconds") + "Z"


def states(store: Any) -> None:
    """All nodes go down; only three of them were known before that, as idle."""
    for n, host in enumerate(NODES):
        rows = [(30, "DOWN")] + ([(-60, "IDLE")] if n < 3 else [])
        for second, state in rows:
            insert(store.con, "model.node_states", {
                "time": BEGAN + timedelta(seconds=second), "cluster": "mini", "host": host, "state": state, "source": "sacctmgr",
            })  # fmt: skip


@pytest.fixture(scope="module")
def store() -> Any:
    """A switch takes nine nodes; a job ends after what opens; a line comes three days late."""
    store = fixture.build()
    states(store)
    insert(store.con, "model.runs", {
        "run_key": "77", "cluster": "mini", "job_id": 77, "attempt": 0, "name": "long", "state": "FAILED", "nodes": NODES[:1], "user": "alice",
        "node_list": NODES[0], "start": BEGAN - timedelta(seconds=100), "end": BEGAN + timedelta(seconds=500),
    })  # fmt: skip
    insert(store.con, "model.runs", {
        "run_key": "78", "cluster": "mini", "job_id": 78, "attempt": 0, "state": "CANCELLED", "nodes": [], "user": "alice",
        "submit": BEGAN, "end": BEGAN + timedelta(seconds=5),
    })  # fmt: skip
    events = [
        {"id": "root", "time": moment(0), "host": "leaf03", "event": "switch.reboot", "layer": "switch", "device": "leaf03", "role": "cause",
         "message": "switch.reboot", "source": "leaf03/syslog", "line": 1, "received_time": moment(LATE_S)},
        *({"id": f"d{n}", "time": moment(30), "host": "ctl", "event": "slurm.node_down", "layer": "node", "device": host, "role": "effect",
           "message": f"Nodes {host} not responding, setting DOWN", "source": "ctl/slurmctld.log", "line": 10 + n} for n, host in enumerate(NODES)),
    ]  # fmt: skip
    chain = [{"cause": "root", "effect": f"d{n}", "edge": "E03", "effect_fact": "node.down", "lag_s": 30.0} for n in range(len(NODES))]  # fmt: skip
    late = [{"layer": "kernel", "host": "leaf03", "kind": "late", "text": "lines came late", "start": moment(0), "end": moment(LATE_S)}]  # fmt: skip
    insert(store.con, "model.incidents", {
        "incident_id": "I7", "cluster": "mini", "start": BEGAN, "end": BEGAN + timedelta(seconds=600), "severity": "impact",
        "category": "infra.network", "root_event": "switch.failure", "root_host": "leaf03",
        "document": json.dumps({"title": "leaf03 failed", "events": events, "chain": chain, "spans": late, "hosts": ["leaf03", *NODES],
                                "unaffected_jobs": [{"job_id": "77", "state": "FAILED", "why": "ended later"}]}),
    })  # fmt: skip
    return store


@pytest.fixture(scope="module")
def once(store: Any) -> Iterator[str]:
    yield from serve(store)


def test_t0_of_a_crashed_daemon_is_its_death_and_not_its_restart() -> None:
    told = document([step(("slurmd.outage", 0, "restart", "n1", None), ("node.down", 388, "b", "ctl", None))], restart=671, b=388)  # fmt: skip
    told["events"][0]["role"] = "recovery"
    begun = first_evidence(told, hops_of(told))
    assert begun is not None and abs((begun - T0).total_seconds()) <= 0.5
    row = {"start": T0, "end": T0 + timedelta(seconds=671)}
    assert document_range(told, row)[0] == begun
    told["events"] = [{"id": "kill", "time": told["events"][1]["time"], "role": "effect"}]
    assert first_evidence({"events": told["events"]}, []) == T0 + timedelta(seconds=388), (
        "without a cause, the first event"
    )
    assert first_evidence({}, []) is None


def test_the_table_counts_from_the_t0_of_the_axis() -> None:
    told = document([step(("switch.outage", -600, None, "s1", None), ("nic.link_down", 0, "a", "n1", None))], a=0)
    told["events"][0] |= {"role": "cause", "event": "nic.link_down"}
    begun = document_range(told, {"start": T0, "end": T0})[0]
    ((_, _, since, _),) = table_rows(told)
    assert since == (T0 - begun).total_seconds() == 600.5


def test_an_incident_says_when_its_first_evidence_is_if_that_came_before_its_begin(store: Any) -> None:
    """ "Began 18:16:12" stood above an axis whose T0, the first evidence, was 18:04:55."""
    began = "Began 03:00:00 UTC 21 Nov 2026"
    client = TestClient(create_app(store))

    def head() -> str:
        text = re.sub(r"<[^>]*>", " ", client.get("/incidents/I7").text)
        return re.sub(r"\s+", " ", text)

    assert f"{began} over at" in head()
    store.con.execute(
        'UPDATE model.incidents SET "start" = ? WHERE incident_id = ?', [BEGAN + timedelta(seconds=31), "I7"]
    )
    try:
        assert "Began 03:00:31 UTC 21 Nov 2026 first evidence 03:00:00 over at" in head()
        assert "<br>first evidence 03:00:00<br>over at" in client.get("/api/v1/incidents/I7/bundle").text
    finally:
        store.con.execute('UPDATE model.incidents SET "start" = ? WHERE incident_id = ?', [BEGAN, "I7"])


def test_lines_that_come_days_late_do_not_stretch_the_picture(store: Any) -> None:
    axis = TestClient(create_app(store)).get("/api/v1/axis/I7").json()
    assert axis["end"] - axis["start"] < 800 < LATE_S
    assert all(band["end"] <= axis["end"] for band in axis["bands"] if band["kind"] == "late")
    (mark,) = (mark for mark in axis["marks"] if mark["id"] == "root")
    assert mark["late"] == LATE_S


def test_how_late_a_line_came_is_said_in_days(store: Any, look: Any, once: str) -> None:
    page = TestClient(create_app(store)).get("/incidents/I7").text
    assert "the line arrived 2 d 21 h late" in page and str(LATE_S) not in page
    shown = look(at=once).open("/incidents/I7", axis=True)
    assert shown.evaluate(f"import('/static/axis/scale.js').then(m => m.lag({LATE_S}))") == "+69.9 h"


#: Numbers of causes 10, 30 and 400 pixels from the first on one lane, and one on another.
NUMBERED = """import('/static/axis/arrows.js').then(m => {
  const rows = {a: {}, b: {}}, at = {a: 100, b: 101, c: 104, d: 400, e: 100};
  const byId = new Map(Object.entries(at).map(([id, t]) => [id, {t, lane: id === 'e' ? 'b' : 'a'}]));
  const roots = ['a', 'b', 'c', 'd', 'e'].map((id, n) => ({id, n: n + 1}));
  const view = {gutter: 0, width: 900, byLane: new Map(Object.entries(rows))};
  return m.numbered(view, {x: t => t}, roots, byId).map(one => one.words);
})"""
#: What the axis says of two GPUs' values at moments after T0: before, between two samples, after its own was lost, after all.
VALUES = """import('/static/axis/series.js').then(m => {
  const one = {name: 'power', unit: 'W', own: '0000:ba:00', lost: true, devices: 8, pieces: [[[0, 60, 90, 80], [300, 60, 70, null], [600, 60, 70, null]]]};
  const lost = m.ended(one, {hi: 60}), went = m.ended({...one, pieces: [one.pieces[0].slice(0, 1)]}, {hi: 60});
  const one_after_the_other = m.ended({...one, lost: false}, {hi: 60});
  return [...[-1, 10, 310, 601].map(t => m.at(one, t, t => `+${t} s`)), lost, went, one_after_the_other];
})"""


#: How many lines of a link that is up there are behind a link's lane and a counter's, and the words of one value and of two.
LINKS = """Promise.all([import('/static/axis/bands.js'), import('/static/axis/series.js')]).then(([m, s]) => {
  const rows = [[], [{}]].map(series => ({item: {layer: 'link', series, bands: []}, middle: 10}));
  let lines = 0;
  m.bands({fillRect: () => { lines += 1; }}, {layer: () => 'blue'}, {rows, gutter: 0, width: 900}, {});
  return [lines, ...[[50000, 50000], [40, 67]].map(range => s.across({range, unit: 'x'}))];
})"""


def test_a_counter_that_jumped_once_is_one_value_and_no_line(look: Any, once: str) -> None:
    """A link's lane has a line where the link is up; behind a counter's only sample it was read as its value before and after."""
    assert look(at=once).open("/incidents/I7", axis=True).evaluate(LINKS) == [1, "50000 x", "40–67 x"]


def test_causes_at_one_moment_share_a_number_and_values_say_when_they_were_measured(look: Any, once: str) -> None:
    """Of the numbers 1, 2 and 3 of three causes at one moment only the last could be seen."""
    shown = look(at=once).open("/incidents/I7", axis=True)
    assert shown.evaluate(NUMBERED) == ["1–3", "4", "5"]
    assert shown.evaluate(VALUES) == [
        "power: not measured", "power of 0000:ba:00: 80 W, at +0 s; all 8 devices 60 to 90 W",
        "power of 0000:ba:00: not measured, at +300 s; all 8 devices 60 to 70 W", "power: not measured",
        "last 80 W at 0 s, then not measured", "", "",
    ]  # fmt: skip


#: What is done to the canvas, in order, where an arrow leads along a job's bar to its end; and the places of words and of pills.
STRUCK = """Promise.all([import('/static/axis/bands.js'), import('/static/axis/arrows.js')]).then(([b, a]) => {
  const done = [], g = new Proxy({measureText: words => ({width: 6 * words.length}), stroke: path => done.push('stroke'),
    fillText: words => done.push(words)}, {get: (has, name) => has[name] ?? (() => {}), set: () => true});
  const p = {c: {}, font: () => '', layer: () => '', glyph: () => {}};
  const band = {kind: 'job', start: 0, end: 500, state: 'FAILED', text: 'n1', ending: 'bad', told: true};
  const row = {item: {id: 'job', layer: 'job', bands: [band], marks: [], series: []}, top: 40, bar: 16, middle: 48};
  const cause = {item: {id: 'gpu', layer: 'gpu', bands: [], marks: [], series: []}, top: 0, bar: 16, middle: 8};
  const view = {gutter: 0, top: 0, width: 900, height: 90, rows: [cause, row], byLane: new Map([['gpu', cause], ['job', row]])};
  const scale = {x: t => t, t: x => x}, byId = new Map([['a', {lane: 'gpu', t: 100}], ['b', {lane: 'job', t: 500, role: 'effect'}]]);
  b.bands(g, p, view, scale);
  const words = 'a window that is allowed, so long that it reaches the end';
  const data = {arrows: [{n: 1, from: 'a', to: 'b', lag: 400, lag_text: words, window: null, because: ''}]};
  const pills = a.arrows(g, p, view, scale, data, byId, {});
  return [done, pills, row.ending];
})"""


def test_an_arrow_does_not_strike_out_how_a_job_ended(look: Any, once: str) -> None:
    """The arrow from an Xid to the end of its job went through "FAILED", and the pill of a step covered "TIMEOUT"."""
    done, pills, ending = look(at=once).open("/incidents/I7", axis=True).evaluate(STRUCK)
    assert done[0] == "FAILED", "it is written with its bar"
    again = len(done) - done[::-1].index("FAILED")
    assert "stroke" in done[:again] and again < done.index("1"), "and again over the arrow, below the pill"
    (pill,) = pills
    assert pill["x"] + pill["w"] < ending["x"] or pill["x"] > ending["x"] + ending["w"], "no pill covers it"


def drawn(eyes: Any, path: str) -> list[str]:
    """What the axis of a page writes on its canvas."""
    eyes.page.add_init_script(DRAWN)
    page = eyes.open(path, axis=True)
    found: list[str] = page.evaluate(
        "(() => { window.drawn = []; document.getElementById('axis').axis.paint(); return window.drawn; })()"
    )
    return found


def test_a_job_that_ends_out_of_sight_is_running_there(look: Any, once: str) -> None:
    before = drawn(look(at=once), f"/incidents/I7?from={moment(0)}&to={moment(60)}")
    assert any(words.startswith("running, FAILED at +") for words in before), before
    assert "FAILED" not in before
    whole = drawn(look(at=once), f"/incidents/I7?from={moment(-50)}&to={moment(600)}")
    assert "FAILED" in whole and not any(words.startswith("running") for words in whole)


def test_a_folded_lane_counts_only_the_nodes_of_which_a_state_is_known(look: Any, once: str) -> None:
    words = drawn(look(at=once), f"/incidents/I7?from={moment(-60)}&to={moment(90)}")
    assert [word for word in words if "IDLE" in word] == ["IDLE", "2 of 8 IDLE"], words


def test_ruler_and_minimap_stay_and_the_wheel_scrolls_where_not_all_fits(look: Any, wide_site: str) -> None:
    page = look(at=wide_site).open("/incidents/I9", axis=True)
    span = "(() => { const s = document.getElementById('axis').axis.scale; return s.hi - s.lo; })()"
    page.locator("[data-layer=all]").click()
    until(page, "!document.getElementById('axis').axis.fits")
    box, before = page.locator("#axis canvas").bounding_box(), page.evaluate(span)
    page.mouse.move(box["x"] + 600, box["y"] + 200)
    page.mouse.wheel(0, 700)
    until(page, "scrollY > 300 && document.getElementById('axis').axis.offset > 0")
    top = "Math.round(document.querySelector('#axis canvas').getBoundingClientRect().top)"
    until(page, f"document.getElementById('axis').axis.offset === -{top}")  # the ruler is drawn where the window begins
    assert page.evaluate(span) == before, "it scrolled, and did not zoom"
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    until(page, f"{span} < {before}")


def test_a_job_that_never_started_is_not_said_to_lack_a_collected_file(store: Any) -> None:
    page = TestClient(create_app(store)).get("/jobs/78").text
    assert "This run has not started, so it printed nothing." in page and "was not collected" not in page
    assert "was not collected, or the job wrote no output" in TestClient(create_app(store)).get("/jobs/77").text


@pytest.mark.parametrize(
    ("changed", "not_started"),
    [
        ({}, True),
        ({"state": "PENDING", "end": None, "attempt": 1}, True),
        ({"state": "PENDING", "end": None, "submit": None}, True),
        ({"submit": None}, False),  # only the line of its end is known
        ({"nodes": ["m00"]}, False),
        ({"state": "FAILED"}, False),
        ({"state": "REQUEUED"}, False),
        ({"state": "RUNNING", "end": None}, False),
        ({"start": BEGAN}, False),
    ],
)
def test_that_no_start_is_stored_does_not_mean_that_a_run_never_started(
    changed: dict[str, Any], not_started: bool
) -> None:
    store = fixture.build()
    insert(store.con, "model.runs", {
        "run_key": "79", "cluster": "mini", "job_id": 79, "attempt": 0, "state": "CANCELLED", "nodes": [], "user": "alice",
        "submit": BEGAN, "end": BEGAN + timedelta(seconds=5), **changed,
    })  # fmt: skip
    page = TestClient(create_app(store)).get("/jobs/79").text
    assert ("has not started, so it printed" in page) == not_started == ("was not collected" not in page)
    assert "never started" not in page and ("has not started" in page) == not_started


def test_from_the_list_to_the_raw_line_and_its_surroundings_in_three_clicks(look: Any) -> None:
    page = look().open("/")
    page.locator("a[href^='/incidents/I1']").first.click()
    page.wait_for_selector("#axis[data-ready=yes]")
    page.locator("#chain li .n").nth(1).click()
    event = page.locator("#chain li.on")
    # The line of the place where the page opened is hot until those of the click are there.
    place = event.locator(".file").first.inner_text()
    until(page, f"document.querySelector('#lines .ln.hot .file')?.innerText === {json.dumps(place)}")
    line = page.locator("#lines .ln.hot").first
    line.locator(".file").click()
    page.wait_for_selector("#lines .ctx .me")
