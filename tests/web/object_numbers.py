"""The numbers of pages about one job or one node, of reports and of dashboards, against the API's and KQL's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from compared import MOMENT, Asked, Page, Row, many, words
from told_numbers import Element

from correlator.model.gauges import GAUGES
from queries.reports.wording import worded
from web.shaping import between, clock, key, moment, number, open_rival, short_file, span, stamp


def of_objects(asked: Asked) -> Iterator[Page]:
    """Each page, compared."""
    for row in _some_jobs(asked):
        yield _job(asked, row)
    for row in _some_nodes(asked):
        yield _node(asked, row)
    yield from (_quiet(asked, path) for path in ("/tail", "/reports"))
    yield from _reports(asked)
    yield from _dashboards(asked)


def _some_jobs(asked: Asked) -> list[Row]:
    """A run of each state and category, and the one with the most nodes."""
    rows = asked.all("jobs")
    kinds = {(row["state"], row["category"]): row for row in rows}
    widest = sorted(rows, key=lambda row: row["node_count"] or 0)[-1:]
    return asked.some({row["run_key"]: row for row in [*kinds.values(), *widest]}.values(), 3)


def _job(asked: Asked, row: Row) -> Page:
    name = key(row["run_key"])
    page, found, rate = Page(asked, f"/jobs/{name}"), asked.json(f"/jobs/{name}"), asked.json(f"/jobs/{name}/pace")
    verdict = found["verdict"] or {}
    ran, gpus = between(found["start"], found["end"]), found["gpus"]
    head = page.main.one(class_="headrow").all("span", class_="dim")[-1]
    limit = f" of its {span(found['time_limit_s'])}" if found["time_limit_s"] else ""
    page.says(
        head,
        f"ran {span(ran)}{limit}" if ran is not None else head.text if not re.search(r"\d", head.text) else "no number",
    )
    if verdict.get("confidence") is not None:
        sure = page.main.one(class_="sure").one("span", class_="dim")
        wanted = "final" if verdict["final"] else "may still change"
        if verdict["category"] != "unknown":
            wanted = f"{number(round(verdict['confidence'], 2))}, {wanted}"
        page.wrong += [f"{page.path}: {sure.text}"] * (not sure.text.startswith(wanted))
        page.passes(sure)
    if verdict.get("evidence"):
        note = page.panel("Evidence").one("span", class_="faint")  # type: ignore[union-attr]
        page.wrong += [f"{page.path}: {note.text}"] * (
            not note.text.startswith(f"{many(len(verdict['evidence']), 'line')}")
        )
        page.passes(note)
        _begun(page, verdict)
    nodes = found["node_count"] or len(found["nodes"] or [])
    page.note("Nodes", f"{many(nodes, 'node')}{f', {gpus} GPU' if gpus else ''}")
    panel = page.panel("Nodes")
    for foot in panel.all(class_="foot others") if panel else ():
        cards = len([one for one in panel.all("div") if str(one.attributes.get("class")).startswith("node ")])  # type: ignore[union-attr]
        quiet = re.match(r"No evidence against (\d+) (?:other )?nodes?:", foot.text)
        page.wrong += [f"{page.path}: {foot.text[:60]}"] * (not quiet or int(quiet[1]) != len(found["nodes"]) - cards)
        page.passes(foot)
    page.note("Runs", len(found["runs"]))
    for cells, run in zip(page.rows(page.panel("Runs")), found["runs"], strict=True):  # type: ignore[arg-type]
        page.says(cells["1"], clock(run["start"], 0) if run["start"] else "never")
        page.says(cells["2"], span(between(run["start"], run["end"])) if run["end"] and run["start"] else "")
    _accounting(page, found, ran)
    _output(page, found)
    _pace(page, rate)
    page.says(page.main.one(class_="headrow").one("b"), f"{found['run_key']} {found['name'] or ''}")
    rivals = verdict.get("rivals") or []
    for card in [one for one in panel.all("div", class_="node ") for one in [one]] if panel else []:
        named = [one for one in rivals if one["host"] == card.one("a").text]
        told = re.search(r", and (\d+) more\.", card.text)
        page.wrong += [f"{page.path}: {card.text}, of {len(named)}"] * (
            (int(told[1]) if told else 0) != max(0, len(named) - 1) and "rejected" in card.text
        )
        page.passes(card)
    for one in page.main.all("span"):
        label = re.match(r"What would (?:make it known|change this verdict)", one.text)
        if label:
            page.says(one, f"{label[0]}: {verdict.get('change_my_mind')}")
    sentences = [one for one in page.main.all("p", class_="lede") if "Its steps took" in one.text]
    took = [f"{one['ratio']:.1f}" for one in found["slowed"] if one["ratio"]]
    page.wrong += [
        f"{page.path}: {one.text}, not {took}"
        for one in sentences
        if (n := re.search(r"took ([\d.]+) times", one.text)) is None or n[1] not in took
    ]
    for one in sentences:
        page.passes(one)
    for block in page.main.all("details", class_="ctx"):
        page.says(block.one("summary"), f"all {len(block.all('div'))} lines of it")
        page.passes(block)
    if rivals:
        left = sum(open_rival(one) for one in rivals)
        page.note("Also considered", f"{len(rivals) - left} rejected" + (f", {left} not" if left else ""))
    for one in page.main.all("button", class_="file") + page.main.all(class_="by") + page.main.all("p", class_="code"):
        page.passes(one)
    script = page.panel("Script and environment")  # the job's own texts
    for one in script.all("dd") + script.all("pre") + script.all("summary") if script else ():
        page.passes(one)
    panel = page.panel("What happened")
    for one in panel.all("span", class_="faint") if panel else ():
        page.passes(one)
    states = [asked.json(f"/nodes/{key(name)}")["states"] for name in found["nodes"] or ()]
    slow = [asked.json(f"/incidents/{key(name)}") for name in found["slowed_by"]]
    page.quoted(found, asked.json(f"/lines?job={found['job_id']}&limit=2000"), states, slow)
    return page


def _accounting(page: Page, found: Row, ran: float | None) -> None:
    panel = page.panel("Accounting")
    assert panel
    said = dict(zip([one.text for one in panel.all("dt")], panel.all("dd"), strict=True))
    code = "?" if found["exit_code"] is None else found["exit_code"]
    expected = {"Exit code": f"{code}:{found['exit_signal'] or 0}", "Submitted": stamp(found["submit"])}
    expected["Started"] = stamp(found["start"]) if found["start"] else "never"
    expected["Ended"] = f"{stamp(found['end'])} (± 1 s)" if found["end"] else "not yet"
    if ran is not None and found["gpus"]:
        expected["GPU-hours"] = number(round(ran * found["gpus"] / 3600, 2))
    for name, value in expected.items():
        page.says(said[name], value, name)


def _output(page: Page, found: Row) -> None:
    """Of each file the lines that are shown, and how many it has."""
    panel = page.panel("Output")
    parts = panel.all("details", class_="part") if panel else []
    lines = page.asked.kql(
        f'Logs | where JobId == {found["job_id"]} and Source in ("job_stdout", "job_stderr") | summarize N=count() by File'
    )
    of_file = {short_file(file): n for file, n in lines or []}
    for part in parts:
        note, shown = (
            part.one("span", class_="faint"),
            len([one for one in part.one(class_="out").all("div") if one.attributes["class"] != "note"]),
        )
        file = part.one("summary").text.removesuffix(note.text).strip()
        total = (
            of_file.get(file, shown)
            if lines is not None
            else int(re.findall(r"[\d,]+", note.text)[-1].replace(",", ""))
        )
        page.says(note, many(total, "line") if total == shown else f"last {shown} of {many(total, 'line')}", file)
        for one in part.one(class_="out").all("span"):
            page.passes(one)
    if parts and panel:
        page.note("Output", many(len(parts) + max(0, len(of_file) - len(parts)), "file"))


def _pace(page: Page, rate: Row) -> None:
    panel = page.panel("Step time")
    if panel is None:
        page.wrong += [f"{page.path}: no step time"] * (rate["all"] is not None)
        return
    several = rate["ranks_total"] > 1
    page.note("Step time", many(rate["ranks_total"], "rank") if several else "from its output")
    said = [one.one("span") for one in panel.all(class_="who")]
    page.says(said[0], f"median {rate['all']['median_s']:.3g} s")
    for one, rank in zip(said[1:], rate["ranks"], strict=False):
        page.says(
            one,
            f"{rank['median_s']:.3g} s" + (f", {rank['ratio']:.2f} × the median" if rank["ratio"] is not None else ""),
        )
    lowest, highest = (most(point[place] for point in rate["all"]["points"]) for most, place in ((min, 1), (max, 3)))
    foot = panel.one("p", class_="foot")
    ends = [stamp(rate["all"]["points"][place][0]) for place in (0, -1)]
    range_ = f"{lowest:.3g} s to {highest:.3g} s" if lowest != highest else f"{highest:.3g} s"
    wanted = [f"From {ends[0]} to {ends[1]}, as the job itself printed it: {range_}, drawn from 0."]
    wanted += (
        [f"The {len(said) - 1} slowest of {rate['ranks_total']} are shown"]
        if several and rate["ranks_total"] > len(said) - 1
        else []
    )
    page.wrong += [f"{page.path}: {foot.text}, not {one}" for one in wanted if one not in foot.text]
    page.passes(foot)


def _begun(page: Page, verdict: Row) -> None:
    """Causes that no line tells of stand at the first moment at which they can have begun: that of the step, less its uncertainty."""
    steps = [one for one in verdict["chain"] if one.get("cause_time")]
    first = {clock(_moved(one["cause_time"], -one["cause_pm_s"])) for one in steps}
    last = {clock(_moved(one["cause_time"], one["cause_pm_s"])) for one in steps}
    last |= {clock(one["cause_until"]) for one in steps if one.get("cause_until")}
    for line in page.panel("Evidence").all("div"):  # type: ignore[union-attr]
        if "ln" in str(line.attributes.get("class")).split() and ", no line" in line.text:
            begun, until = line.one(class_="t"), line.one("span", class_="dup")
            by = until.text.partition("began by ")[2].strip()
            page.wrong += [f"{page.path}: a cause without a line at {begun.text}"] * (begun.text.strip() not in first)
            page.wrong += [f"{page.path}: {until.text}"] * (by not in {"", *last})
            page.passes(begun)
            page.passes(until)


def _moved(time: str, seconds: float) -> datetime:
    when = moment(time)
    assert when is not None
    return when + timedelta(seconds=seconds)


def _some_nodes(asked: Asked) -> list[Row]:
    """The nodes with the most incidents, events and jobs, and one without a state."""
    rows = asked.all("nodes")
    chosen = [max(rows, key=lambda row: row[name]) for name in ("incidents", "events")] if rows else []
    chosen += [row for row in rows if row["state"] is None][-1:] + [row for row in rows if row["state"]][:2]
    return asked.some({row["name"]: row for row in chosen}.values(), 1)


def _node(asked: Asked, row: Row) -> Page:
    name = key(row["name"])
    page, found = Page(asked, f"/nodes/{name}"), asked.json(f"/nodes/{name}")
    risk, fit = asked.json(f"/nodes/{name}/risk"), asked.json(f"/nodes/{name}/fitness")
    met = asked.json(f"/incidents?host={name}&limit=500")["incidents"]
    ran = asked.json(f"/jobs?host={name}&limit=500")["jobs"]
    for title, rows in (("Incidents", met), ("Jobs here", ran)):
        page.note(
            title, f"{len(rows)} in range" if len(rows) <= 50 else "newest 50 of the range; narrow it to see the rest"
        )
    page.counts("jobs", len(ran), f'Jobs | where Nodes has "{row["host"]}" | summarize count()')
    events = found["recent_events"]
    note = page.panel("Events").one("span", class_="faint")  # type: ignore[union-attr]
    page.wrong += [f"{page.path}: {note.text}"] * (
        not note.text.startswith(f"{len(events)}, newest first" if len(events) < 500 else "newest 500")
    )
    page.passes(note)
    for one in page.main.all("span", class_="dim"):
        if one.text.endswith(" by accounting"):
            page.says(one, f"{many(found['running_jobs'], 'job')} by accounting")
    _risk(page, risk)
    states = page.panel("States")
    for one in states.all(class_="states") if states else ():
        _strip(page, one, found)
    measured = page.panel("Measured")
    if measured:
        _measured(page, measured, row)
    cabled = page.panel("Links")
    for one, item in zip(found["links"], cabled.all("dd") if cabled else [], strict=False):
        page.says(
            item,
            " ".join(str(one[name] or "") for name in ("switch", "switch_port", "plane", "rail")).replace("None", ""),
        )
    for block in page.main.all("details", class_="ctx"):
        page.says(block.one("summary"), f"all {len(block.all('div'))} lines of it")
        page.passes(block)
    aged = page.panel("Fit for a job?").one("span", class_="faint")  # type: ignore[union-attr]
    page.passes(aged)
    for one in (
        page.main.all("button", class_="file")
        + page.main.all(class_="by")
        + [one for panel in [page.panel("Out of service")] if panel for one in panel.all("span", class_="faint")]
    ):
        page.passes(one)
    page.quoted(found, risk, fit, met, ran)
    return page


def _risk(page: Page, risk: Row) -> None:
    panel = page.panel("Lemon score")
    assert panel
    for cells, family in zip(page.rows(panel), risk["families"], strict=True):
        expected = (number(family["incidents"]), number(round(family["expected"], 2)), f"{family['probability']:.2g}")
        for n, value in enumerate(expected, 1):
            page.says(cells[str(n)], value, family["family"])


def _strip(page: Page, strip: Element, found: Row) -> None:
    """The times of the kinds of states together are no longer than what is drawn."""
    first, last = (one.text for one in strip.one("p", class_="faint").all("span"))
    whole = (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
    begun = moment(found["states"][0]["time"])
    page.wrong += [f"{page.path}: the states begin {first}, and the first is {begun}"] * (first != stamp(begun))
    drawn = sum(float(str(one.attributes["width"])) for one in strip.all("rect"))
    page.wrong += [f"{page.path}: states of {drawn} units"] * (drawn > 600 + 2 * len(strip.all("rect")) or whole < 0)
    page.passes(strip)


def _measured(page: Page, panel: Element, row: Row) -> None:
    """Each gauge's lowest and highest value of the last day, by KQL."""
    until = panel.one(class_="ph").one("span", class_="faint")
    page.passes(until)
    for one in panel.all("th"):
        page.passes(one)
    for cells in page.rows(panel):
        gauge = next(one for one in GAUGES.values() if cells["0"].text.startswith(one.name + " "))
        names = ", ".join(f'"{name}"' for name in gauge.metrics)
        rows = page.asked.kql(
            f'Metrics | where Host == "{row["host"]}" and Metric in ({names}) | summarize min(Value), max(Value), dcount(Device)'
        )
        for one in cells.values():
            page.passes(one)
        if rows:
            low, high, devices = rows[0]
            told = f"{number(round(low, 2))}" + (f" to {number(round(high, 2))}" if high != low else "")
            expected = [(cells["0"], f"{gauge.name} {many(devices, 'device')}")]
            expected += [] if gauge.counter else [(cells["2"], f"{told} {gauge.unit}".strip())]
            page.wrong += [f"{page.path}: {cell.text}, not {value}" for cell, value in expected if cell.text != value]


def _quiet(asked: Asked, path: str) -> Page:
    """A page that states no number of the site's: periods to choose, and addresses."""
    page = Page(asked, path)
    for one in page.main.all("a", class_="ctl sm") + page.main.all("noscript"):
        page.passes(one)
    page.quoted(asked.json("/reports") if path == "/reports" else [])
    return page


def _reports(asked: Asked) -> Iterator[Page]:
    """The figures and tables of each report, and of what there is more than one source, those of the incidents."""
    if not asked.has_kql:  # reports read what queries read
        return
    incidents = asked.all("incidents")
    lost = sum(row.get("gpu_hours_lost") or 0 for row in incidents)
    for name in asked.some((row["name"] for row in asked.json("/reports")["reports"]), 1):
        page, found = Page(asked, f"/api/v1/reports/{name}?format=html"), asked.json(f"/reports/{name}?format=json")
        for section in found["sections"]:
            figures = {figure["label"]: figure for figure in section["figures"]}
            if "Incidents" in figures:
                page.wrong += [f"{page.path}: {figures['Incidents']}"] * (
                    figures["Incidents"]["value"] != len(incidents)
                )
            if "GPU-hours lost to incidents" in figures:
                told = figures["GPU-hours lost to incidents"]["value"]
                page.wrong += [f"{page.path}: {told} lost, and the incidents {lost}"] * (abs(told - lost) > 0.01)
        page.wrong += _unlike(page, found)
        yield page


def _unlike(page: Page, found: Row) -> list[str]:
    """Figures and rows of the tables of a report that its page has otherwise."""
    figures = [one for section in found["sections"] for one in section["figures"]]
    tables = [one for section in found["sections"] for one in section["tables"]]
    shown = [one.text for one in page.main.all("dd")]
    expected = [words(f"{_worded(one['value'], one['kind'])} {one['note'] or ''}") for one in figures]
    wrong = [f"{page.path}: {one!r}, not {other!r}" for one, other in zip(shown, expected, strict=True) if one != other]
    drawn = page.main.all("table")
    if len(drawn) != len([one for one in tables if one["rows"]]):
        return [*wrong, f"{page.path}: {len(drawn)} tables of {len(tables)}"]
    for table, element in zip([one for one in tables if one["rows"]], drawn, strict=True):
        rows = [[cell.text for cell in row.all("td")] for body in element.all("tbody") for row in body.all("tr")]
        all_rows = [
            [words(_worded(row[column["key"]], column["kind"])) for column in table["columns"]] for row in table["rows"]
        ]
        wrong += [
            f"{page.path}: {one}, not {other}" for one, other in zip(rows, all_rows, strict=False) if one != other
        ]
        left = len(all_rows) - len(rows)
        wrong += [f"{page.path}: {len(rows)} of {len(all_rows)} rows"] * (
            left > 0 and f"{left} more" not in page.main.text
        )
    return wrong


def _worded(value: Any, kind: Any) -> str:
    """As a report's page has a value; its JSON has moments as texts."""
    return worded(moment(value) if isinstance(value, str) and MOMENT.match(value) else value, kind)


def _dashboards(asked: Asked) -> Iterator[Page]:
    """The rows of each panel are those of its query."""
    if not asked.has_kql:
        return
    boards = Page(asked, "/dashboards")
    links = [one for one in boards.main.all("a") if str(one.attributes["href"]).startswith("/dashboards/")]
    for link in asked.some(links, 1):
        path = f"{link.attributes['href']}?from=now-3650d"
        asked_by, page = Page(asked, path), Page(asked, f"{path}&tables=yes")
        panels = [one for one in asked_by.main.all("section") if "data-query" in one.attributes]
        shown = next(item for item in boards.main.all("li") if item.all("a") and item.one("a") is link).one(
            "span", class_="faint"
        )
        boards.wrong += [f"{link.text}: {shown.text} of {len(panels)}"] * (
            not shown.text.startswith(many(len(panels), "panel"))
        )
        for panel in panels:
            limits = {name: value for name in ("from", "to") if (value := panel.attributes[f"data-{name}"])}
            body = {"query": panel.attributes["data-query"], "max_rows": 100, **limits}
            answer = asked.client.post("/api/v1/query", json=body).json()
            there = page.main.one("section", id=str(panel.attributes["id"]))
            rows = sorted(
                [cell.text for cell in row.all("td")] for part in there.all("tbody") for row in part.all("tr")
            )
            expected = sorted([words("" if cell is None else cell) for cell in row] for row in answer["rows"])
            page.wrong += [f"{path}: {len(rows)} rows of {panel.one('h2').text}, not {len(expected)}"] * (
                len(rows) != len(expected)
            )
            # Of equals any may be among the first.
            if not answer["truncated"] and not re.search(r"\b(?:take|limit|top)\b", str(body["query"])):
                page.wrong += [f"{path}: {one}, not {other}" for one, other in zip(rows, expected, strict=False)
                               if [a for a, b in zip(one, other, strict=True) if a != b and not b.startswith(("[", "{"))]]  # fmt: skip
        yield page
    for item in boards.main.all("span", class_="faint"):
        boards.passes(item)
    boards.quoted([])
    yield boards
