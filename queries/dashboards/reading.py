"""A dashboard from its file. A panel with an error shows the error, and the others work."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from queries.dashboards.model import CHARTS, COLUMNS, Dashboard, Panel, Problem
from queries.kql.errors import KqlError
from queries.saved import Saved, draws, parameters_of, with_values

#: A range that begins before now: now-6h.
RELATIVE = r"^now-\d{1,6}[smhdw]$"
_SECONDS = {"s": 1, "m": 60, "h": 3600}
#: Panels are not asked more often: the queries of a page that stays open cost the service as much as those of people.
LEAST_REFRESH_S = 5
#: More panels than this do not fit a page that anybody reads.
MOST_PANELS = 40
#: A file is smaller than this, bytes.
MOST_BYTES = 262_144
_NAME = re.compile(r"^[a-z0-9][a-z0-9_-]{0,63}$")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Head(_Part):
    title: str = Field(min_length=1, max_length=120)
    description: str = Field(default="", max_length=600)
    range: str = Field(default="now-24h", pattern=RELATIVE)
    refresh: str = Field(default="", pattern=r"^(?:\d{1,5}[smh])?$")

    @property
    def refresh_s(self) -> int:
        return max(LEAST_REFRESH_S, int(self.refresh[:-1]) * _SECONDS[self.refresh[-1]]) if self.refresh else 0


class _Entry(_Part):
    title: str = Field(default="", max_length=120)
    description: str = Field(default="", max_length=600)
    kql: str = Field(default="", max_length=100_000)
    saved: str = ""
    parameters: dict[str, str | int | float | bool] = Field(default_factory=dict)
    chart: str = ""
    width: int = Field(default=COLUMNS, ge=1, le=COLUMNS)
    range: Literal["within", "until", "none"] = "within"

    @model_validator(mode="after")
    def _has_one_query(self) -> _Entry:
        if bool(self.kql.strip()) == bool(self.saved):
            raise ValueError("needs either kql or saved")
        if self.kql and not self.title:
            raise ValueError("needs a title")
        if self.chart and self.chart not in CHARTS:
            raise ValueError(f"chart {self.chart!r} is unknown; known are {', '.join(CHARTS)}")
        return self


def read(file: Path, library: Mapping[str, Saved], origin: str = "built in") -> Dashboard:
    """The dashboard of a file; ``library`` has the saved queries that it may name. Never raises for what the file says."""

    def broken(reason: str, do: str, line: int | None = None) -> Dashboard:
        problem = Problem(file, line, "", reason, do)
        return Dashboard(file.stem, file.stem, file, origin=origin, problem=problem, problems=(problem,))

    try:
        with file.open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
        text = data.decode("utf-8")
        if len(data) > MOST_BYTES:
            return broken(f"is larger than {MOST_BYTES} bytes", "split it into several dashboards")
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        return broken(f"is no TOML: {error}", "correct that line", int(found[1]) if found else None)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return broken(f"cannot be read: {reason}", "correct the path, its permissions or its encoding (UTF-8)")
    if not _NAME.match(file.stem):
        return broken("its name is no address", "rename it: letters a to z, digits, - and _, such as gpu-health.toml")
    entries = table.pop("panel", [])
    if not isinstance(entries, list) or not entries or len(entries) > MOST_PANELS:
        return broken("has no list of panels", f"write 1 to {MOST_PANELS} tables [[panel]]")
    try:
        head = _Head.model_validate(table)
    except ValidationError as error:
        return broken(*_first_error(error, _Head))
    places = _places(text)
    panels = tuple(
        _panel(entry, number, file, library, places[number - 1] if number <= len(places) else None)
        for number, entry in enumerate(entries, 1)
    )
    problems = tuple(panel.problem for panel in panels if panel.problem)
    return Dashboard(
        file.stem, head.title, file, head.description, head.range, head.refresh_s, panels, origin, problems=problems
    )  # fmt: skip


def _panel(
    entry: Any, number: int, file: Path, library: Mapping[str, Saved], place: Sequence[str | int] | None
) -> Panel:
    given = entry if isinstance(entry, dict) else {}
    line = int(place[0]) if place else None
    called = str(given.get("title") or given.get("saved") or f"Panel {number}")[:120]

    def broken(reason: str, do: str) -> Panel:
        width = given.get("width")
        wide = width if type(width) is int and 1 <= width <= COLUMNS else COLUMNS
        problem = Problem(file, line, f"panel {number} ({called})", reason, do)
        return Panel(called, file=file, line=line, width=wide, problem=problem)

    try:
        one = _Entry.model_validate(entry)
    except ValidationError as error:
        return broken(*_first_error(error, _Entry))
    source = None
    if one.saved:
        source = library.get(one.saved)
        if source is None:
            return broken(f"there is no saved query {one.saved!r}", "see the names on the page Explore")
    text = source.text if source else one.kql.rstrip()
    try:
        query = with_values(text, one.parameters)
        ranged = _ranged(query, one)
    except ValueError as error:
        return broken(str(error), "correct parameters")
    if one.chart and one.chart != "table" and draws(text):
        return broken("the query has its own render", "keep either that or chart")
    if one.chart and one.chart != "table":
        query = f"{query.rstrip().rstrip(';')}\n| render {one.chart}"
    described = one.description or (source.description if source else "")
    starts = None if source else int(place[1]) if place else None
    return Panel(
        one.title or (source.title if source else called), query, described, one.chart, one.width, one.range, one.saved, ranged,
        source.file if source else file, starts,
    )  # fmt: skip


def _ranged(query: str, one: _Entry) -> tuple[str, ...]:
    """Those of ``since`` and ``step`` that the query declares as timespans, and the panel gives no value."""
    try:
        declared = parameters_of(query)
    except KqlError:  # the panel shows the error of the query, with its position
        return ()
    free = {p.name for p in declared if p.type == "timespan" and p.default is not None} - one.parameters.keys()
    return tuple(name for name in ("since", "step") if name in free and (name, one.range) != ("since", "none"))


def _first_error(error: ValidationError, model: type[BaseModel]) -> tuple[str, str]:
    """The first error in words, and what to do."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{where}: there is no such key", f"known are {', '.join(model.model_fields)}"
    message = str(first["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message, f"correct {where or 'the panel'}"


_HEAD = re.compile(r"\s*\[\[\s*panel\s*\]\]")
_KQL = re.compile(r"\s*kql\s*=\s*(\"\"\"|'''|)")


def _places(text: str) -> list[tuple[int, int]]:
    """For each ``[[panel]]`` its line, and the line on which its KQL begins."""
    found: list[tuple[int, int]] = []
    inside = ""
    for number, line in enumerate(text.split("\n"), 1):
        rest = line
        if not inside:
            if _HEAD.match(line):
                found.append((number, number))
                continue
            if found and (start := _KQL.match(line)):
                begins = number + (bool(start[1]) and not line[start.end() :].strip())
                found[-1] = (found[-1][0], begins)
        while True:  # texts of several lines, which may hold anything
            mark = inside or min((m for m in ('"""', "'''") if m in rest), key=rest.find, default="")
            if not mark or mark not in rest:
                break
            rest = rest[rest.find(mark) + 3 :]
            inside = "" if inside else mark
    return found
