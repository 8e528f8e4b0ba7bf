"""The small values that Slurm writes everywhere: times, durations, exit codes, job IDs, trackable resources."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from parsers.hostlist import expand
from parsers.moments import LATEST, utc
from parsers.zones import UTC_ZONE, find, utc_of

_EMPTY = frozenset({"", "unknown", "none", "n/a", "(null)", "null", "invalid"})
_EPOCH = re.compile(r"\d{9,11}(?:\.\d+)?")
_DURATION = re.compile(r"(?:(?P<d>\d{1,10})-)?(?:(?P<h>\d{1,10}):)?(?:(?P<m>\d{1,10}):)?(?P<s>\d{1,10})(?:\.\d+)?")
_JOB_ID = re.compile(
    r"(?P<base>\d+)(?:_(?:(?P<task>\d+)|(?P<pending>\[[^\]]*\])))?(?:\+(?P<offset>\d+))?(?:\.(?P<step>[\w+]+))?"
)
_GPU_TRES = re.compile(r"(?:^|,)gres/gpu(?P<type>:[^=,]+)?=(?P<count>\d+)")
#: GPUs of a run on a node, by slurmctld: "gpu:h100:2(IDX:0-1)", "gpu(IDX:0-1)" up to 19.05.
_GPU_INDEX = re.compile(
    r"(?:^|,)gpu(?::(?P<type>[^:,()]+(?=:\d)))?(?::\d+)?\(IDX:(?P<numbers>\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)\)"
)
#: A slice of a GPU (MIG), which Slurm numbers as if it were one ("a100_1g.5gb").
SLICE = re.compile(r"\dg\.\d+gb", re.IGNORECASE)
_UNAVAILABLE = re.compile(r"UnavailableNodes:([\w.,\[\]-]+)")
_USER = re.compile(r"(?P<name>.*?)\((?P<uid>\d+)\)")


def present(text: str | None) -> str | None:
    """The text, or None for Slurm's ways of writing nothing ("(null)", "N/A", "None", "Unknown")."""
    return None if text is None or text.strip().lower() in _EMPTY else text.strip()


@lru_cache(maxsize=65536)
def local_time(text: str | None, timezone: str = "UTC") -> datetime | None:
    """A timestamp in ``timezone`` -> naive UTC; None where Slurm writes "Unknown".

    An offset in the timestamp takes precedence over ``timezone``. In the hour that a clock change repeats, the first
    one is taken. Epoch seconds (SLURM_TIME_FORMAT=%s) are read as such. An unknown zone name is read as UTC.
    """
    value = present(text)
    if value is None:
        return None
    if _EPOCH.fullmatch(value):
        return epoch_time(float(value))
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    moment = utc_of(moment, find(timezone) or UTC_ZONE) if moment.tzinfo is None else utc(moment)
    return moment if moment.year > 1970 and moment < LATEST else None  # clamped: no time of Slurm's


def epoch_time(seconds: float | int | None) -> datetime | None:
    """Epoch seconds -> naive UTC; None for 0 and for out-of-range values (Slurm's NO_VAL)."""
    if seconds is None or not 86_400 < seconds < 32_000_000_000 or seconds in (4294967294, 4294967295):
        return None
    return datetime(1970, 1, 1) + timedelta(microseconds=round(seconds * 1_000_000))


def epoch_text(text: object) -> datetime | None:
    """Epoch seconds as text -> naive UTC; None for anything else."""
    try:
        return epoch_time(float(str(text))) if text else None
    except ValueError:
        return None


def duration_s(text: str | None) -> int | None:
    """ "1-00:00:00", "00:10:00", "10:00" or "10" (a bare number is minutes in Slurm) -> seconds.

    None for UNLIMITED, Partition_Limit and everything else that is not a duration.
    """
    found = _DURATION.fullmatch(text.strip()) if text else None
    if not found:
        return None
    days, hours, minutes, last = (found[name] for name in ("d", "h", "m", "s"))
    if hours is not None and minutes is None:
        # "A:B" matches as hours:seconds; it is minutes:seconds, or days-hours:minutes after a day.
        parts = (int(hours), int(last), 0) if days else (0, int(hours), int(last))
    elif hours is None:
        parts = (int(last), 0, 0) if days else (0, int(last), 0)
    else:
        parts = (int(hours), int(minutes or 0), int(last))
    return int(days or 0) * 86_400 + parts[0] * 3600 + parts[1] * 60 + parts[2]


def exit_pair(text: str | None) -> tuple[int | None, int | None]:
    """ "1:0" -> (1, 0): exit code and signal; (None, None) if there is none."""
    code, colon, signal = (text or "").strip().partition(":")
    if not code.isdigit():
        return None, None
    return int(code), int(signal) if colon and signal.isdigit() else None


@dataclass(frozen=True)
class JobId:
    """A job ID as Slurm prints it. ``raw`` is None for an array task whose own number is not printed."""

    raw: int | None
    array_job: int | None = None
    array_task: int | None = None
    step: str | None = None


@lru_cache(maxsize=65536)
def job_id(text: str, raw: str | None = None) -> JobId | None:
    """Reads "120", "120.batch", "120_4.0", "120_[5-9]", "120+1"; ``raw`` is JobIDRaw if known.

    A pending array ("120_[5-9]") is the record with the array's own number; a heterogeneous component ("120+1") has the
    number of the first plus its offset, as slurmctld assigns them together. None if the text is not a job ID.
    """
    found = _JOB_ID.fullmatch(text.strip())
    if not found:
        return None
    base = int(found["base"])
    task = int(found["task"]) if found["task"] else None
    array_job = base if found["task"] or found["pending"] else None
    number: int | None = base + int(found["offset"] or 0)
    own = _JOB_ID.fullmatch(raw.strip()) if raw else None
    if own:
        number = int(own["base"])
    elif task is not None:
        number = None
    return JobId(number, array_job, task, found["step"])


def gpus(tres: str | None) -> int | None:
    """The number of GPUs in an AllocTRES text; "gres/gpu=4,gres/gpu:h100=4" are the same four. None if there is no
    TRES."""
    if not tres or not tres.strip():
        return None
    plain, typed = None, 0
    for found in _GPU_TRES.finditer(tres):
        if found["type"] is None:
            plain = int(found["count"])
        else:
            typed += int(found["count"])
    return typed if plain is None else plain


def gpu_index(detail: str | None) -> str | None:
    """The numbers of a run's GPUs on one node, as slurmctld shows its generic resources there; None if it shows none,
    or slices of GPUs, whose numbers are not those of GPUs."""
    found = list(_GPU_INDEX.finditer(detail or ""))
    if any(one["type"] and SLICE.search(one["type"]) for one in found):
        return None
    return ",".join(one["numbers"] for one in found) or None


def tres(text: str | None) -> str | None:
    """Trackable resources in one order: sources write them in their own."""
    parts = sorted(part.strip() for part in (text or "").split(",") if "=" in part)
    return ",".join(parts) or None


def waits_for(reason: str | None, required: str | None = None) -> list[str] | None:
    """The nodes that a pending job waits for: those that Slurm calls unavailable in its reason ("ReqNodeNotAvail,
    UnavailableNodes:gpu[01-02]", with a blank, or an underscore in its place), and those that it requires."""
    named = _UNAVAILABLE.search(reason or "")
    found = {*expand(named[1] if named else ""), *expand(present(required) or "")}
    return sorted(found) or None


def state(text: str | None) -> tuple[str | None, str | None]:
    """ "CANCELLED by 20001" -> ("CANCELLED", "20001"): the state and who cancelled."""
    words = (text or "").split()
    if not words:
        return None, None
    return words[0].rstrip("+"), words[2] if len(words) > 2 and words[1] == "by" else None


def user(text: str | None) -> tuple[str | None, int | None]:
    """ "alice(20001)" -> ("alice", 20001)."""
    found = _USER.fullmatch(text or "")
    return (found["name"] or None, int(found["uid"])) if found else (present(text), None)


_OF_64_BITS = 1 << 63
_WHOLE = re.compile(r"-?\d+")


def integer(text: object) -> int | None:
    """A whole number of 64 bits, or None. Users write many of them, and no column holds a larger one."""
    if isinstance(text, bool) or text is None:
        return None
    if isinstance(text, int):
        return text if -_OF_64_BITS <= text < _OF_64_BITS else None
    value = str(text).strip()
    return int(value) if len(value) < 19 and _WHOLE.fullmatch(value) else None


def number(text: object) -> float | None:
    """A finite number, or None. Users write many of them (``inf`` in an environment), and no count is infinite."""
    try:
        value = float(str(text))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def other_names(node: str, **names: str | None) -> list[tuple[str, str]]:
    """A node's address and host name according to Slurm, where they differ from the node's own name."""
    if not node or "[" in node or "," in node:
        return []
    return [(key, value) for key, text in names.items() if (value := present(text)) and value.lower() != node.lower()]
