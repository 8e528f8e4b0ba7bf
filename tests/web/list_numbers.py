"""The numbers of pages that list things, and of the map of all nodes, against the API's and KQL's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from urllib.parse import quote

from compared import Asked, Page, Row, many

from web.shaping import between, clock, day, number, span, stamp


def of_lists(asked: Asked) -> Iterator[Page]:
    """Each page, compared."""
    for compare in (_incidents, _jobs, _nodes, _repairs, _sources):
        yield compare(asked)
    yield from _fleets(asked)
    yield from _search(asked)


def _incidents(asked: Asked) -> Page:
    page, rows = Page(asked, "/incidents"), asked.all("incidents")
    severities, states = Counter(row["severity"] for row in rows), Counter(row["triage"]["state"] for row in rows)
    unhandled = sum(row["triage"]["state"] == "new" or bool(row["triage"]["new_evidence"]) for row in rows)
    shown = {name.capitalize(): severities[name] for name in ("impact", "degraded", "benign")}
    if asked.has_kql:  # a store of an older version has no states of triage
        shown |= {name.capitalize(): states[name] for name in ("new", "acknowledged", "resolved", "wrong")} | {
            "Unhandled": unhandled
        }
    page.chips({name: f"{name} {count}" for name, count in {"All": len(rows), **shown}.items()})
    for name in severities:
        page.counts(
            f"{name} incidents", severities[name], f'Incidents | where Severity == "{name}" | summarize count()'
        )
    page.says(page.main.one("p", class_="lede"), _lede(rows, severities), "summary")
    listed = [one for one in page.main.all("a", class_="") if str(one.attributes["class"]).startswith("inc ")]
    for row, item in zip(rows[:50], listed, strict=True):
        told = item.text
        lost, jobs, end = row.get("gpu_hours_lost"), row.get("jobs") or [], row["end"]
        for wanted in (
            f"{number(round(lost, 2))} GPU-hours lost" if lost else "", many(len(jobs), "job") + " hit" if jobs else "",
            f"{row['confidence']:.2f} sure" if row.get("confidence") is not None else "",
            span(between(row["start"], end)) if end else "still open", day(row["start"]), clock(row["start"], 0), row["id"],
        ):  # fmt: skip
            page.wrong += [f"{page.path}: {row['id']} has no {wanted!r}: {told}"] * (wanted not in told)
        for part in item.all(class_="chip ") + item.all(class_="faint") + item.all("span", class_="x"):
            page.passes(part)
        page.passes(item.one(class_="meta").one("span"))
    page.quoted(rows)
    return page


def _lede(rows: list[Row], severities: Counter[str]) -> str:
    ended = sum(len(row.get("jobs") or []) for row in rows)
    slowed = sum(
        len(set(row.get("slowed_jobs") or []) - {job["job_id"] for job in row.get("jobs") or []}) for row in rows
    )
    lost = sum(row.get("gpu_hours_lost") or 0 for row in rows)
    said = [
        f"{many(severities['impact'], 'incident')} in all that is stored ended {many(ended, 'job run')}."
        if severities["impact"] else "No incident in all that is stored ended a job.",
        f"{many(slowed, 'job run')} {'was' if slowed == 1 else 'were'} slowed." if slowed else "",
        f"{number(round(lost, 1))} GPU-hours lost in all." if lost else "",
        f"{many(len([row for row in rows if not row['end']]), 'incident')} still under way."
        if any(not row["end"] for row in rows) else "None is under way.",
    ]  # fmt: skip
    return " ".join(filter(None, said))


def _jobs(asked: Asked) -> Page:
    page, rows = Page(asked, "/jobs"), asked.json("/jobs?limit=50")["jobs"]
    for row, cells in zip(rows, page.rows(page.main), strict=True):
        ran = between(row["start"], row["end"])
        page.cells(cells, {
            "Started": stamp(row["start"]) if row["start"] else "never", "GPUs": "" if row["gpus"] is None else row["gpus"],
            "Ran": span(ran) if ran is not None else "running" if row["start"] else "", "Nodes": row["node_list"] or "",
        })  # fmt: skip
        sure = [one for one in cells["Why"].all("span", class_="faint") if re.search(r"\d", one.text)]
        if row["category"] == "unknown":
            page.wrong += [f"{page.path}: {row['run_key']} has a number without a cause"] * bool(sure)
        elif row["category"] and row["confidence"] is not None:
            page.says(sure[-1], number(round(row["confidence"], 2)), f"confidence of {row['run_key']}")
    page.quoted(rows)
    return page


def _nodes(asked: Asked) -> Page:
    page, rows = Page(asked, "/nodes"), asked.json("/nodes?limit=50")["nodes"]
    for row, cells in zip(rows, page.rows(page.main), strict=True):
        page.cells(cells, {
            "Since": stamp(row["since"]) if row["since"] else "", "Incidents": row["incidents"], "Events": number(row["events"]),
            "Errors": number(row["errors"]), "Last event": stamp(row["last_event"]) if row["last_event"] else "none",
        })  # fmt: skip
        events = f'Events | where Host == "{row["host"]}"'
        page.counts(f"events of {row['name']}", row["events"], f"{events} | summarize count()")
        rooted = f'Incidents | where RootHost == "{row["host"]}" | summarize count()'
        page.counts(f"incidents of {row['name']}", row["incidents"], rooted)
    page.quoted(rows)
    return page


def _repairs(asked: Asked) -> Page:
    page, rows = Page(asked, "/repairs"), asked.all("repairs")
    found = asked.json("/repairs?limit=500")
    urgencies = Counter(row["urgency"] for row in rows)
    page.chips(
        {
            "All": f"All {len(rows)}",
            **{one.capitalize(): f"{one.capitalize()} {urgencies[one]}" for one in ("now", "soon", "watch")},
        }
    )
    for row, cells in zip(rows[:50], page.rows(page.main), strict=True):
        warnings = row["errors"] + row["optics"]
        page.cells(cells, {
            "Flaps": number(row["flaps"]) if row["flaps"] else "", "Warnings": number(warnings) if warnings else "",
            "Down": "still down" if row["down"] else span(row["down_s"]) if row["flaps"] else "",
            "Typical": f"{row['expected']:.2f}" + (" more than chance" if row["outlier"] else ""),
            "Jobs then": number(row["runs"]) if row["runs"] else "", "Last": stamp(row["last"]) if row["last"] else "",
            **{name: keys[0] if len(keys) == 1 else len(keys) or "" for name, keys in (("Slowed", row["slowed"]), ("Ended", row["ended"]))},
        })  # fmt: skip
        if row["plane"]:
            of = f", 1 of {row['planes']}" if row["planes"] > 1 else ""
            page.says(cells["Other end"].one("span", class_="faint"), f"plane {row['plane']}{of}")
    page.quoted(found)
    return page


def _sources(asked: Asked) -> Page:
    page, found = Page(asked, "/sources"), asked.json("/sources")
    rows = asked.all("sources")
    title = page.main.one(class_="title")
    page.says(title.all("a", class_="chip")[0], f"All {number(len(rows))}")
    hosts = len({row["host"] for row in rows if row["host"]})
    notes = title.all("span", class_="dim hide-s")
    page.says(notes[0], f"streams of {many(hosts, 'host')}; a host appears with its first data")
    if found["job_outputs"]:
        page.says(notes[1], f"{many(found['job_outputs'], 'file')} of job output, a row a host: each")
        files = sum(row.get("files") or 1 for row in rows if row["source"] in ("job_stdout", "job_stderr"))
        page.wrong += [f"{page.path}: {found['job_outputs']} files of job output, and rows of {files}"] * (
            files != found["job_outputs"]
        )
    page.chips({words: f"{number(found[name])} {words}" for name, words in (
        ("late", "came late"), ("silent", "silent"), ("unparsed", "not parsed"), ("ahead", "stamped ahead")) if found[name]})  # fmt: skip
    page.counts("lines", sum(row["lines"] for row in rows), "Logs | summarize count()")
    panel = page.main.one("section", aria_label="Sources")
    for row, cells in zip(rows[:50], page.rows(panel), strict=True):
        lag = row["lag_s"] if row["lag_s"] is not None else row["late_s"]
        page.cells(cells, {
            "Lines": number(row["lines"]), "Events": "" if row["events"] is None else number(row["events"]),
            "Not parsed": "" if row["unparsed"] is None else number(row["unparsed"]), "Lag": "" if lag is None else span(lag),
            "Stamped ahead": number(row["ahead"]) if row["ahead"] else "", "Lines / s": "",
        })  # fmt: skip
        if row.get("files"):
            page.says(cells["Stream"], f"{number(row['files'])} files")
        else:  # the folder that all are in is shown once, above them
            page.wrong += [f"{page.path}: {row['file']}"] * (
                not (row["file"] or "").endswith(cells["Stream"].text.replace(" ", ""))
            )
            page.passes(cells["Stream"])
    for one in page.main.all("span", class_="mono any"):
        page.passes(one)
    page.quoted(found, rows)
    return page


def _fleets(asked: Asked) -> Iterator[Page]:
    for measure in asked.some(("state", "incidents", "temperature", "flaps", "lemon"), 1):
        page, found = Page(asked, f"/fleet?measure={measure}"), asked.json(f"/fleet?measure={measure}")
        nodes, classes = found["nodes"], found["classes"]
        of = Counter(classes[place]["name"] for place in nodes["class"])
        page.wrong += [f"{page.path}: {one} is {of[one['name']]}" for one in classes if of[one["name"]] != one["nodes"]]
        total, slurms = len(nodes["name"]), found["slurm_nodes"]
        others = f" and {many(total - slurms, 'other host')}" if total > slurms else ""
        hosts = f"{many(slurms, 'node')}{others}" if slurms else many(total, "host")
        page.says(page.main.one(class_="title").one("span", class_="dim"), f"{hosts}, each a square")
        for one, item in zip(classes, page.main.one("ul", class_="legend").all("li"), strict=False):
            page.says(item, f"{one['words']} {number(one['nodes'])}")
        page.passes(page.main.one("ul", class_="legend").all("li")[-1])  # what is measured, in words
        foot = page.main.one("p", class_="foot")
        if found["grouped"]["by"] != "name":
            page.wrong += [f"{page.path}: {foot.text}"] * (
                f"known of {number(found['grouped']['known'])} of {many(total, 'square')}" not in foot.text
            )
        page.passes(foot)
        _stand_out(page, found)
        sizes = {group["name"]: group["nodes"] for group in found["groups"]}
        page.says(page.main.one("details", id="groups").one("summary"), f"{many(len(sizes), 'group')} in words")
        for item in page.main.one("details", id="groups").all("li"):
            name, _, told = item.text.rpartition(": ")
            counted = sum(int(n) for n in re.findall(r"(?:^|, )(\d+) ", told))
            page.wrong += [f"{page.path}: {item.text}, of {sizes.get(name)}"] * (counted != sizes.get(name))
            page.passes(item)
        for one in page.main.all("form", id="choice") + page.main.all("span", class_="steps") + page.main.all("svg"):
            page.passes(one)
        page.quoted(found)
        yield page


def _stand_out(page: Page, found: Row) -> None:
    panel = page.main.one("section", aria_labelledby="listed-h")
    listed, nodes = page.rows(panel), found["nodes"]
    place = {name: n for n, name in enumerate(nodes["name"])}
    noted = panel.one(class_="ph").one("span", class_="faint")
    if len(listed) < 60:
        page.says(noted, many(len(listed), "node"))
    for cells in listed:
        n = place[cells["Node"].text]
        value = (nodes.get("value") or [None] * len(place))[n]
        told = next(cell for head, cell in cells.items() if head not in ("Node", "Group", "More"))
        label = found["classes"][nodes["class"][n]]["words"]
        page.says(told, label + (f": {number(value)}" if value is not None else ""))
        more = nodes["says"][n]
        page.says(cells["More"], found["texts"][more] if more is not None else "")


def _search(asked: Asked) -> Iterator[Page]:
    names = [row["root_cause"]["host"] for row in asked.all("incidents")[:1]] or ["gpu"]
    for name in asked.some((f"{names[0]} ", "a"), 1):  # not exactly a node's name, or its page opens
        text = f"{name.strip()[:-1]}" if name.endswith(" ") else name
        page = Page(asked, f"/search?q={quote(text)}")
        answers = []
        for title, kind, path in (
            ("Incidents", "incidents", f"/incidents?q={text}&limit=500"), ("Jobs", "jobs", f"/jobs?q={text}&limit=500"),
            ("Nodes", "nodes", f"/nodes?q={text}&limit=500"),
        ):  # fmt: skip
            rows = asked.json(path)[kind]
            answers.append(rows)
            if rows:
                page.note(title, len(rows) if len(rows) <= 10 else "first 10; narrow the words or the range")
        found = asked.json(f"/lines?q={text}&limit=50")
        if found["lines"]:
            shown = (
                f"first {len(found['lines'])}; there are more, query them in Explore"
                if found["truncated"]
                else len(found["lines"])
            )
            kinds = {row["time_quality"] for row in found["lines"]}
            times = f", all times {min(kinds)}" if len(kinds) == 1 and kinds - {"line", None} else ""
            page.note("Lines", f"{shown}{times}")
        for one in page.main.all("button", class_="file") + page.main.all(class_="by"):
            page.passes(one)
        page.quoted(answers, found)
        yield page
