"""Converts a pattern's named groups: numbers, expanded node lists, job IDs in all of Slurm's spellings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from parsers import xid
from parsers.host_names import short_name
from parsers.hostlist import expand
from parsers.reasons import split_reason

_INTS = frozenset({
    "pid", "xid", "sxid", "rank", "local_rank", "uid", "gid", "secs", "count", "cpus", "task", "exit_code", "signal", "mc", "cpu", "lane",
    "module", "ib_port", "gpu", "nvlink", "nvswitch", "nvswitch_port", "queue", "sector", "rc", "seq", "timeout_ms",
    "total_events", "jiffies", "msg_type", "boot_time", "last_response", "prio", "celsius", "physical_id", "repeat", "ib_status",
    "vendor_err", "cuda_code", "lid", "lid_first", "trap", "speed_mbps", "bytes", "db_errno", "last_job_uid",
})  # fmt: skip
_FLOATS = frozenset({"value_dbm", "threshold_dbm", "uptime_s", "offset_s"})
_FLAGS = frozenset({"admin_down", "symptom", "detail"})
_JOB = re.compile(r"(?P<a>\d+)(?:_(?P<t>\d+|\*|\[[^\]]*\])|\+(?P<h>\d+))?(?:\((?P<raw>\d+)\))?$")
#: Slurm's reserved step numbers (slurm.h.in: SLURM_EXTERN_CONT ... SLURM_INTERACTIVE_STEP).
_STEPS = {"4294967292": "extern", "4294967291": "batch", "4294967290": "interactive", "4294967293": "pending"}
_ACTIONS = {"waking": "resume", "suspending": "suspend", "powering down": "power_down", "powering up": "power_up"}
_SPEED = {"k": 0.001, "m": 1, "g": 1000, "t": 1_000_000}


def job_ids(text: str) -> dict[str, str]:
    """``12``, ``120_4``, ``120_4(124)``, ``120+1(121)`` -> job_id (the raw ID if it is written), array_job_id and
    array_task; empty for anything else."""
    found = _JOB.match(text)
    if not found:
        return {}
    out = {"job_id": (found["raw"] or found["a"]).lstrip("0") or "0"}
    if found["t"]:
        out |= {"array_job_id": found["a"], "array_task": found["t"]}
    elif found["h"]:
        out |= {"het_job_id": found["a"], "het_offset": found["h"]}
    return out


def step_name(text: str) -> str:
    """Slurm's step number in its notation: 4294967291 -> batch."""
    return _STEPS.get(text, text)


def nodes_of(nodelist: str) -> list[str]:
    """``gpu[01-02]`` -> names; ``(null)`` -> none; a list that does not parse is one name, never an error."""
    text = nodelist.strip()
    if text in ("", "(null)", "None", "..."):
        return []
    try:
        return list(expand(text))
    except Exception:  # a bad host list must not lose the line
        return [text]


def tidy(raw: dict[str, Any]) -> dict[str, Any]:
    """Named groups as they matched (None: not at all) -> entities. Groups ``job``, ``step``, ``nodelist``, ``node`` and
    ``speed``/``unit`` give several entities each; unknown names stay texts."""
    out = _with_values({}, ((*_reading(written), value) for written, value in raw.items()))
    if not _REWRITTEN.isdisjoint(out):
        _rewrite(out)
    return out


def _with_values(out: dict[str, Any], parts: Iterable[tuple[str, Callable[[str], Any] | None, Any]]) -> dict[str, Any]:
    """``out`` plus the groups: the name of an entity, its converter, and its text."""
    for name, reader, value in parts:
        if value is None:
            continue
        if type(value) is not str:
            out[name] = value
        elif reader is not None:
            found = reader(value)
            if type(found) is dict:
                out |= found
            else:
                out[name] = found
        elif value and value not in ("<unknown>", "'<unknown>'"):
            out[name] = value.strip()
    return out


class Reading:
    """The entities of one regex's matches: :func:`tidy` of ``fixed`` and the groups that matched."""

    def __init__(self, regex: re.Pattern[str], fixed: dict[str, Any]) -> None:
        groups = regex.groupindex
        self._written, self._numbers = tuple(groups), tuple(groups.values())
        self._names = tuple(_reading(name)[0] for name in groups)
        self._readers = tuple(_reading(name)[1] for name in groups)
        self._fixed = fixed
        self._always = _with_values({}, ((*_reading(name), value) for name, value in fixed.items()))
        # A group overrides a fixed value of the same name: only a match shows which of them remain.
        self._overlap = not groups.keys().isdisjoint(fixed)
        # Entities that a converter adds beside the group's own are never rewritten.
        self._rewritten = not _REWRITTEN.isdisjoint((*self._names, *self._always))

    def __call__(self, found: re.Match[str]) -> dict[str, Any]:
        values = found.group(*self._numbers) if len(self._numbers) > 1 else tuple(map(found.group, self._numbers))
        if self._overlap:
            written_values = zip(self._written, values, strict=True)
            return tidy({**self._fixed, **{name: value for name, value in written_values if value is not None}})
        out = _with_values(self._always.copy(), zip(self._names, self._readers, values, strict=True))
        if self._rewritten:
            _rewrite(out)
        return out


@cache  # as many as catalogues have group names
def _reading(written: str) -> tuple[str, Callable[[str], Any] | None]:
    """The entity for a group's name, and the converter of its text."""
    name = written.rstrip("_")  # a regex may use a group name only once: the second spelling ends in "_"
    return name, _READERS.get(name)


def _rewrite(out: dict[str, Any]) -> None:
    """Normalises some entities, and adds what a number is known to mean."""
    if "action" in out:
        out["action"] = _ACTIONS.get(str(out["action"]).lower(), out["action"])
    if "check" in out:
        out["check"] = str(out["check"]).lower()
    if "severity" in out:
        out["severity"] = _class(str(out["severity"]))
    if "protocol" in out:
        out["protocol"] = str(out["protocol"]).lower()
    if isinstance(out.get("xid"), int):
        out |= xid.described(out["xid"])
    if isinstance(out.get("sxid"), int) and "severity" not in out and out["sxid"] in xid.sxids():
        out["sxid_class"] = xid.sxids()[out["sxid"]]


def _nodes(value: str) -> dict[str, Any]:
    nodes = {"nodes": nodes_of(value)}
    return nodes | {"nodelist": value} if "[" in value or "," in value else nodes


def _drain_reason(value: str) -> dict[str, Any]:
    reason = value.strip()
    parts = split_reason(value) if reason else {}
    return {"reason": reason, **{f"reason_{part}": text for part, text in parts.items()}}


def tags_of(entities: dict[str, Any]) -> tuple[str, ...]:
    """Tags that follow from entities alone: the Xid's class, and lines that represent several."""
    if isinstance(entities.get("xid"), int):
        tag = xid.tag_of(entities["xid"])
        return (tag,) if tag else ()
    return ("repeat_marker",) if "repeat" in entities else ()


def _number(value: str) -> int | str:
    try:
        return int(value, 0) if value[:2].lower() == "0x" else int(value)
    except ValueError:
        return value


def _speed(value: str) -> dict[str, Any]:
    found = re.match(r"\s*([\d.]+)\s*-?([kmgt])", value.lower())
    if not found:
        return {}
    mbps = float(found[1]) * _SPEED[found[2]]
    return {"speed_mbps": int(mbps) if mbps == int(mbps) else mbps}


def _class(value: str) -> str:
    """NVIDIA writes Fatal, Non-fatal and Nonfatal; AER writes Corrected, which stays unchanged."""
    low = value.lower().replace("-", "")
    return low if low in ("fatal", "nonfatal") else value


#: The converter of a group's text: into one entity of the group's name, or (a dict) several.
_READERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(_INTS, _number), **dict.fromkeys(_FLOATS, float), **dict.fromkeys(_FLAGS, lambda _value: True),
    "job": job_ids, "step": lambda value: {"step_id": step_name(value)}, "nodelist": _nodes, "node_names": _nodes,
    "short_node": lambda value: {"nodes": [short_name(value)]}, "speed": _speed, "drain_reason": _drain_reason,
}  # fmt: skip
#: Entities that are rewritten after conversion.
_REWRITTEN = frozenset({"action", "check", "severity", "protocol", "xid", "sxid"})
