"""How values look on a page: times, lags, files, states. No HTML here; templates escape."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from correlator.model import certainty, subjects
from correlator.model.categories import CATEGORIES
from correlator.model.kinds import BUILT_IN_LANES
from correlator.model.slowdown import sentence
from parsers.job_states import Phase, in_phase
from parsers.node_states import kind_of_state
from parsers.writers import in_words
from web.timerange import parse_time, rfc3339
from web.zones import local, name_at

#: The layers in the order in which a fault travels up, with their group on the axis.
LAYERS = {lane.name: lane.title for lane in BUILT_IN_LANES}


@cache
def layers() -> Mapping[str, str]:
    """``LAYERS`` with the lanes of installed packages, each behind the one that it follows."""
    found: dict[str, str] = {}
    for name, group in LAYERS.items():
        found[name] = group
        found |= {lane.name: lane.title for lane in subjects.lanes() if lane.after == name}
    return found


#: The layer of sources whose name is not that of a layer.
SOURCE_LAYER = {
    "opensm": "switch", "syslog": "kernel", "messages": "kernel", "kmsg": "kernel", "dmesg": "kernel",
    "journald": "kernel", "slurmdbd": "slurmctld", "slurmstepd": "slurmd", "job_stdout": "job", "job_stderr": "job",
    "fabricmanager": "gpu", "dcgm": "gpu", "lustre": "storage", "nvme": "storage",
}  # fmt: skip
CATEGORY_WORDS = {name: category.words for name, category in CATEGORIES.items()}
#: States of runs by how they are coloured.
BAD_STATES = in_phase(Phase.FAILED)
STOPPED_STATES = in_phase(Phase.STOPPED, Phase.REQUEUED)


def moment(value: object) -> datetime | None:
    """A datetime from a row or from a document's RFC 3339 text; None if it is invalid."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, str) and value:
        try:
            if value.endswith("Z"):  # the form in documents, thousands at a time
                return datetime.fromisoformat(value[:-1])
            return parse_time("time", value)
        except ValueError:
            return None
    return None


def wire(value: Any) -> Any:
    """Rows and documents as JSON: datetimes in RFC 3339 UTC, timespans in seconds."""
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {str(key): wire(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [wire(item) for item in value]
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    return str(value)


def clock(value: object, digits: int = 3) -> str:
    """Time of day in the reader's zone, with ``digits`` fractional digits for columns that line up."""
    when = moment(value)
    if when is None:
        return "time unknown"
    when = local(when)
    text = when.strftime("%H:%M:%S")
    return f"{text}.{when.microsecond:06d}"[: 9 + digits] if digits else text


def day(value: object) -> str:
    when = moment(value)
    return f"{local(when):%-d %b %Y}" if when else "date unknown"


def zone(value: object = None) -> str:
    """The name of the reader's zone at a moment; now by default."""
    return name_at(moment(value))


def stamp(value: object) -> str:
    """Date and time to the second."""
    when = moment(value)
    return f"{local(when):%Y-%m-%d %H:%M:%S}" if when else "unknown"


def span(seconds: object) -> str:
    """A duration in readable units: 3 ms, 35.0 s, 12 min, 3 h 20 min, 2 d 4 h."""
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    if not isinstance(seconds, (int, float)):
        return "unknown"
    size, sign = abs(float(seconds)), "−" if seconds < 0 else ""
    if size == 0:
        return "0 s"
    if size < 0.001:
        return f"{sign}{size * 1e6:.0f} µs"
    if size < 1:
        return f"{sign}{size * 1e3:.0f} ms"
    if size < 100:
        return f"{sign}{size:.1f} s"
    if size < 7200:
        return f"{sign}{size:.0f} s" if size < 600 else f"{sign}{size / 60:.0f} min"
    if size < 172800:
        return f"{sign}{int(size // 3600)} h {int(size % 3600 // 60)} min"
    return f"{sign}{int(size // 86400)} d {int(size % 86400 // 3600)} h"


def ago(seconds: object) -> str:
    """How long ago, in one unit: just now, 12 min ago, 3 h ago, 4 d ago."""
    if not isinstance(seconds, (int, float)):
        return "at an unknown time"
    for size, unit, least in ((86400, "d", 172800), (3600, "h", 7200), (60, "min", 60)):
        if seconds >= least:
            return f"{int(seconds // size):,} {unit} ago"
    return "just now"


def since(value: object) -> float | None:
    """Seconds from a moment until now."""
    when = moment(value)
    return (datetime.now(UTC).replace(tzinfo=None) - when).total_seconds() if when else None


def between(start: object, end: object) -> float | None:
    first, last = moment(start), moment(end)
    return (last - first).total_seconds() if first and last else None


def number(value: object) -> str:
    """Plain numbers without trailing noise: 16, 34.974, 0.17."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "?"
    return f"{value:,.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else f"{value:,}"


def size(value: object) -> str:
    """Bytes as 812 B, 4.1 kB, 3.9 GB."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "?"
    amount = float(value)
    for unit in ("B", "kB", "MB", "GB"):
        if abs(amount) < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" or abs(amount) >= 100 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def window(pair: object) -> str:
    """An allowed window as "16–50 s" or "−300 to 300 s", or empty if a chain step has none."""
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        return ""
    unit, of = ("days", 86400) if float(pair[1]) >= 2 * 86400 else ("s", 1)
    ends = [number(float(end) / of if of > 1 else end).replace("-", "−") for end in pair]
    return f"{('–' if min(map(float, pair)) >= 0 else ' to ').join(ends)} {unit}"


def sentences(texts: object) -> str:
    """Facts as sentences in a row: "COMPLETED", "ran on other nodes" -> "COMPLETED. Ran on other nodes."."""
    stripped = [str(text).strip() for text in texts if text] if isinstance(texts, (list, tuple)) else []
    return " ".join(text[:1].upper() + text[1:] + ("" if text[-1:] in ".!?" else ".") for text in stripped if text)


UNTOUCHED_JOBS = re.compile(r"\s+Jobs? [^.]* (?:was|were) untouched\.\s*$")


def brief(title: object) -> str:
    """An incident's sentence for a list, without the jobs that it did not affect."""
    return UNTOUCHED_JOBS.sub("", str(title or ""))


def short_file(path: object) -> str:
    """The last two components of a path: enough to distinguish files, short enough for a column."""
    return "/".join(str(path or "").split("/")[-2:])


def breakable(path: object) -> Markup:
    """A whole path for a narrow column: it breaks after its slashes first."""
    return Markup("/<wbr>").join(str(path or "").split("/"))


def layer_of(source: object) -> str:
    """The layer that gives a line its colour."""
    name = str(source or "")
    if "/" in name:
        # Evidence names a file where a line names its stream; the file's name is equivalent.
        folder, base = name.rsplit("/", 1)
        name = "job_stdout" if "jobs" in folder.split("/") else base.split(".")[0]
    return name if name in layers() else SOURCE_LAYER.get(name, "kernel" if name else "job")


def key(value: object) -> str:
    """A path segment: "15#1" -> "15%231"."""
    return quote(str(value), safe="")


#: Kinds of node states in which a node does not serve jobs properly.
OUT_OF_SERVICE = {"down", "silent", "drain"}


def slowdown(item: Mapping[str, Any]) -> str:
    """A time in which a run was slower (``web.slowdowns``), as a sentence."""
    start, end = item["start"], item["end"]
    return sentence(item, stamp(start) if start else None, f"{stamp(end)} {zone(end)}" if end else None)


def open_rival(item: Mapping[str, Any]) -> bool:
    """Could a cause that was considered beside the verdict's not be rejected?"""
    return str(item.get("rejected") or "not rejected").startswith("not rejected")


def state_kind(state: str) -> str:
    """What a node's state, as Slurm writes it, is drawn as: down, silent, drain, off, busy, idle, up or unknown; being out of
    service takes precedence. A state that Slurm itself does not know is neither idle nor busy."""
    kind = kind_of_state(state)
    return "down" if kind == "failed" else kind


def document(text: object) -> dict[str, Any]:
    """A JSON document column; a broken one gives an empty document with a doubt instead of a broken page."""
    if isinstance(text, Mapping):
        return dict(text)
    try:
        found = json.loads(text) if isinstance(text, str) and text else {}
    except ValueError:
        return {"doubts": ["The stored document could not be read; only the columns are shown."]}
    return found if isinstance(found, dict) else {}


FILTERS = {
    "clock": clock, "day": day, "ago": ago, "since": since, "stamp": stamp, "span": span, "number": number, "window": window,
    "sureness": certainty.in_words, "sure_of": certainty.sure_of, "asks_for": certainty.asks_for,
    "sentences": sentences, "short_file": short_file, "breakable": breakable, "layer_of": layer_of, "key": key, "iso": wire,
    "bytes": size, "brief": brief, "state_kind": state_kind, "zone": zone, "in_words": in_words, "slowdown": slowdown,
}  # fmt: skip
