"""The numbers on the page of an incident, read from its HTML, against the answers of the API."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from web.shaping import between, clock, number, sentences, span, window

#: Elements without an end.
VOID = {"br", "input", "link", "meta", "img", "hr", "path", "rect", "circle", "use"}


class Element:
    """An element with its children; texts are children too."""

    def __init__(self, name: str, attributes: dict[str, str | None]) -> None:
        self.name, self.attributes, self.children = name, attributes, list[Any]()

    @property
    def text(self) -> str:
        """All text in it, words parted by one space."""
        found = (one if isinstance(one, str) else one.text for one in self.children)
        return re.sub(r"\s+", " ", " ".join(found)).strip()

    def all(self, name: str = "", **attributes: str) -> list[Element]:
        """The elements below it with a name and attributes (``data_mark`` is data-mark; "" is any value), in the page's order."""
        wanted = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
        out = []
        for one in self.children:
            if isinstance(one, Element):
                fits = all(
                    key in one.attributes and value in ("", one.attributes[key]) for key, value in wanted.items()
                )
                out += [one] * (fits and name in ("", one.name)) + one.all(name, **attributes)
        return out

    def one(self, name: str = "", **attributes: str) -> Element:
        return self.all(name, **attributes)[0]


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        made = Element(tag, dict(attrs))
        self._open[-1].children.append(made)
        if tag not in VOID:
            self._open.append(made)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        names = [one.name for one in self._open]
        if tag in names[1:]:
            del self._open[len(names) - 1 - names[::-1].index(tag) :]

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


def read(page: str) -> Element:
    """The elements of a page."""
    parser = _Page()
    parser.feed(page)
    return parser.root


def misnumbered(page: str, axis: dict[str, Any], incident: dict[str, Any], runs: dict[str, Any]) -> list[str]:
    """Numbers of an incident's page that are not those of the API: its document, its axis, its runs (``runs``, by name)."""
    root = read(page)
    return [*_head(root, incident), *_chain(root, axis), *_table(root, axis, incident), *_jobs(root, incident, runs)]


def _differ(what: str, shown: str, expected: str) -> list[str]:
    return [] if shown == expected else [f"{what}: the page has {shown!r}, the API {expected!r}"]


def _counts(incident: dict[str, Any]) -> tuple[int, int, int]:
    """Jobs that were hit, slowed and untouched."""
    hit = [job["job_id"] for job in incident["jobs"]]
    untouched = incident.get("unaffected_count") or len(incident["unaffected_jobs"])
    return len(hit), len([key for key in incident["slowed_jobs"] if key not in hit]), untouched


def _head(root: Element, incident: dict[str, Any]) -> list[str]:
    head = root.one("section", class_="head")
    facts = {one.one("dt").text: one.one("dd").text for one in head.one("dl").all("div")}
    wrong = _differ("headline", head.one("h1").text, re.sub(r"\s+", " ", incident["title"]).strip())
    sure = facts["Confidence and its basis"]
    if not sure.startswith(f"{number(round(incident['confidence'], 2))} "):
        wrong.append(f"confidence: {sure} of {incident['confidence']}")
    grounds = re.sub(r"\s+", " ", sentences(incident["grounds"]))
    wrong += [f"grounds: {sure}"] if grounds not in sure else []
    lasted = (
        f"{span(between(incident['start'], incident['end']))} long" if incident["end"] else "so far, still under way"
    )
    wrong += _differ("cost", facts["GPU-hours lost"], f"{number(round(incident['gpu_hours_lost'], 2))} {lasted}")
    hit, slowed, untouched = _counts(incident)
    wrong += _differ("jobs", facts["Jobs"], f"{hit} hit {untouched} untouched {slowed} slowed")
    wrong += [] if facts["Began"].startswith(clock(incident["start"], 0)) else [f"began: {facts['Began']}"]
    told = [re.search(r"(\d+) of (\d+) delays", text) for text in incident["grounds"]]
    for found in filter(None, told):
        wrong += _differ("delays", found[2], str(len(incident["chain"])))
    return wrong


def _chain(root: Element, axis: dict[str, Any]) -> list[str]:
    """Each step has the number, the delay and the window of the arrow that leads to its mark."""
    arrows: dict[str, list[dict[str, Any]]] = {}
    for arrow in axis["arrows"]:
        arrows.setdefault(arrow["to"], []).append(arrow)
    wrong = []
    listed = [one for chain in root.all("ol", id="chain") for one in chain.all("li", data_event="")]
    for item in listed:
        n, lag = item.one("button").text, item.all("div", class_="lag")
        if not lag:
            continue
        said, found = lag[0].text, arrows.get(str(item.attributes["data-mark"]), [])
        fits = [a for a in found if str(a["n"]) == n and a["lag_text"].lstrip("−") in said.replace("−", "")]
        if not fits:
            wrong.append(f"step {n}: {said}, and the axis has {[(a['n'], a['lag_text']) for a in found]}")
        elif not any(window(a["window"]) in said for a in fits):
            wrong.append(f"step {n}: {said}, and the axis allows {[a['window'] for a in fits]}")
    numbers = {str(arrow["n"]) for arrow in axis["arrows"]}
    wrong += [f"no step {n} in the chain" for n in numbers - {item.one("button").text for item in listed}]
    return wrong


def _table(root: Element, axis: dict[str, Any], incident: dict[str, Any]) -> list[str]:
    """Each event is as far from T0 as its mark on the axis."""
    marks = {mark["id"]: mark["t"] for mark in axis["marks"]}
    events = sorted(incident["events"], key=lambda item: str(item.get("time")))
    rows = root.one("details", id="table").all("tr")[1:]
    if len(rows) != min(len(events), 500):
        return [f"{len(rows)} rows of {len(events)} events"]
    if len(events) > 500:
        return []
    wrong = []
    for event, row in zip(events, rows, strict=True):
        since = marks.get(event["id"])
        if since is not None:
            wrong += _differ(
                f"{event['event']} in the table", row.all("td")[1].text, f"{'+' if since >= 0 else ''}{span(since)}"
            )
    return wrong


def _jobs(root: Element, incident: dict[str, Any], runs: dict[str, Any]) -> list[str]:
    panel = root.one("section", aria_labelledby="jb")
    hit, slowed, untouched = _counts(incident)
    said = ", ".join(filter(None, [f"{hit} hit", f"{slowed} slowed" if slowed else "", f"{untouched} untouched"]))
    wrong = [] if said in panel.text else [f"jobs: {panel.text[:60]}, not {said}"]
    for item, job in zip(panel.all("li"), incident["jobs"], strict=False):
        run = runs[job["job_id"]]
        ran = between(run["start"], run["end"])
        for words in (
            job["job_id"],
            f"{job['gpus']} GPU" if job["gpus"] else "",
            f"after {span(ran)}" if ran is not None else "",
        ):
            if words not in item.text:
                wrong.append(f"job {job['job_id']}: {item.text}, not {words}")
    return wrong
