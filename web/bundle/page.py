"""The file of a bundle: one page of HTML that needs nothing else, and no network.

Its policy forbids every request, and allows exactly one script and one style sheet, by their digests: markup in a log
line has no effect even if an escape were forgotten. The data is attached as links of data: to save.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

import jinja2
import polars as pl
from markupsafe import Markup

from parsers.visible import visible
from web import api, chain, pages
from web.bundle.gathering import LINE_COLUMNS, Content, Limits, content
from web.bundle.redaction import Redactor
from web.bundle.scripts import one_script
from web.reading import Reader
from web.shaping import wire
from web.zones import shown_in

FORMAT = "faultline-bundle/1"
#: The maximum size of a file, bytes: ticket systems accept that much. What does not fit is cut, and named.
MOST_BYTES = 8 * 2**20
#: The maximum size of an attached part: browsers save no longer link of data: than 2 MiB, and base64 adds a third.
MOST_PART = 1_400_000
#: If a bundle is too large it is made again with the next ones.
LIMITS = (Limits(), Limits(lines=600, marks=1_000), Limits(lines=0, marks=200))
STYLES = ("tokens.css", "page.css", "incident.css", "triage.css", "bundle.css")


@dataclass(frozen=True)
class Part:
    """Data that a bundle carries. ``rows`` is None where it has none."""

    name: str
    kind: str
    body: bytes
    rows: int | None = None

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.body).hexdigest()

    @property
    def link(self) -> str:
        return f"data:{self.kind};base64,{base64.b64encode(self.body).decode()}"


def bundle(read: Reader, incident_id: str, templates: jinja2.Environment, *, redacted: bool) -> tuple[str, bytes]:
    """The incident's name and the file. Raises ``ProblemError`` if there is no such incident."""
    for limits in LIMITS:
        found = content(read, incident_id, limits)
        body = _file(found, templates, several=read.names().several, redacted=redacted)
        if len(body) <= MOST_BYTES:
            break
    return str(found.incident["incident_id"]), body


def _file(found: Content, templates: jinja2.Environment, *, several: bool, redacted: bool) -> bytes:
    replaced: Mapping[str, int] = {}
    whole: dict[str, Any] = {
        "incident": found.incident, "runs": found.runs, "states": found.states, "axis": found.axis, "lines": found.lines,
        "changes": found.changes, "similar": found.similar,
    }  # fmt: skip
    if redacted:
        redactor = Redactor(found.others, found.own)
        whole = redactor.tree(whole)
        replaced = {name: redactor.counts[name] for name in ("secrets", "users", "addresses")}
    row = whole["incident"]
    document = row["document"]
    events = {str(event.get("id")): event for event in document.get("events") or []}
    steps = chain.chain_steps(document, events)
    parts, cut = _parts(whole, found.cut)
    manifest = {
        "format": FORMAT, "incident": row["incident_id"], "made_at": wire(_now()), "faultline": _version(),
        "redacted": redacted, "replaced": replaced, "cut": cut,
        "parts": [{"name": p.name, "type": p.kind, "rows": p.rows, "bytes": len(p.body), "sha256": p.digest} for p in parts],
    }  # fmt: skip
    style, script = _style(), _script()
    with shown_in("UTC"):
        text = templates.get_template("bundle.html").render(
            row=row, doc=document, runs={run["run_key"]: run for run in whole["runs"]}, states=whole["states"], events=events,
            steps=steps, first=chain.first_before(document, row["start"]), hosts=chain.hosts_of(steps), table=chain.table_rows(document), lines=whole["lines"],
            changes=whole["changes"], similar=whole["similar"], axis=_in_script(whole["axis"]), manifest=manifest,
            manifest_json=_in_script(manifest), parts=parts, cut=cut, replaced=replaced, made=_now(), policy=_policy(style, script),
            style=Markup(style), script=Markup(script), zone="UTC", person=None, reads=False, writable=False, judged=[],
            params={}, kept={}, path="", settings={}, offline=True, link=_no_link, every=_no_link, called=_own_name, several=lambda: several,
        )  # fmt: skip
    return visible(text).encode("utf-8", "replace")


def _no_link(*_: object, **__: object) -> str:
    return "#"


def _own_name(host: object, _cluster: object = None) -> str:
    return str(host)


def _parts(whole: Mapping[str, Any], cut: Sequence[str]) -> tuple[list[Part], list[str]]:
    """The attached data, and the sentences about what is not in it."""
    cut = list(cut)
    row = whole["incident"]
    document = api.incident_document(row)
    document["triage"] = row["triage"] | {"history": whole["changes"]}
    events = document.get("events") or []
    about = {"incident": wire(document), "runs": wire(whole["runs"]), "node_states": wire(whole["states"])}
    body = _json(about)
    if len(body) > MOST_PART:
        about["incident"] = about["incident"] | {"events": []}
        cut.append("incident.json: the events, which events.parquet has.")
        body = _json(about)
    parts = [Part("incident.json", "application/json", body[:MOST_PART])]
    if len(body) > MOST_PART:
        cut.append(f"incident.json: what is beyond its first {MOST_PART:,} bytes.")
    for name, rows in (
        ("events", wire(events)),
        ("lines", whole["lines"]),
    ):
        made, count = _table(rows, LINE_COLUMNS if name == "lines" else ())
        if count < len(rows):
            cut.append(f"{name}.parquet: {len(rows) - count:,} of {len(rows):,} rows.")
        parts.append(Part(f"{name}.parquet", "application/vnd.apache.parquet", made, count))
    return parts, cut


def _table(rows: list[dict[str, Any]], columns: Sequence[str]) -> tuple[bytes, int]:
    """Rows as Parquet, and how many of them fit."""
    names = columns or list(dict.fromkeys(name for row in rows for name in row))
    whole = pl.DataFrame({name: _column([row.get(name) for row in rows]) for name in names})
    count = len(rows)
    while True:
        frame = whole.head(count)
        held = io.BytesIO()
        frame.write_parquet(held, compression="zstd")
        if held.tell() <= MOST_PART or not count:
            return held.getvalue(), count
        count //= 2


def _column(values: list[Any]) -> list[Any]:
    """The values of a column in one type: lists and documents as JSON, different types as texts."""
    kinds = {type(value) for value in values} - {type(None)}
    if kinds & {dict, list, tuple}:
        return [None if value is None else json.dumps(value, default=wire) for value in values]
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    return values if len(kinds) < 2 else [None if value is None else str(value) for value in values]


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1, default=wire).encode("utf-8", "replace")


def _in_script(value: object) -> Markup:
    """JSON in a block of data: nothing in it ends the block."""
    text = json.dumps(value, default=wire, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _policy(style: str, script: str) -> str:
    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    return (
        f"default-src 'none'; script-src 'sha256-{digest(script)}'; style-src 'sha256-{digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _style() -> str:
    folder = pages.HERE / "static" / "css"
    return _plain("\n".join((folder / name).read_text(encoding="utf-8") for name in STYLES), "</style")


@cache
def _script() -> str:
    return _plain(one_script(pages.HERE / "static", "bundle.js"), "</script")


def _plain(text: str, end: str) -> str:
    """A text of ours that stays what it is inside its element, and whose digest is that of what a browser reads."""
    if end in text.lower() or "<!--" in text or visible(text) != text or "\r" in text:
        raise ValueError(f"a static file holds {end!r}, a comment or a character that a page shows as an escape")
    return text


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None, microsecond=0)


@cache
def _version() -> str:
    try:
        return importlib.metadata.version("faultline")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
