"""What a pattern's named groups become: numbers, expanded node lists, job ids in all of Slurm's spellings."""

from __future__ import annotations

import re
from typing import Any

from parsers import xid
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
    """``12``, ``120_4``, ``120_4(124)``, ``120+1(121)`` -> job_id (the raw id where it is written), array_job_id and
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
    """Slurm's step number as people write it: 4294967291 -> batch."""
    return _STEPS.get(text, text)


def nodes_of(nodelist: str) -> list[str]:
    """``gpu[01-02]`` -> names; ``(null)`` -> none; a list that does not parse is one name, never an error."""
    text = nodelist.strip()
    if text in ("", "(null)", "None", "..."):
        return []
    try:
        return list(expand(text))
    except Exception:  # a bad hostlist must not lose the line
        return [text]


def tidy(raw: dict[str, Any]) -> dict[str, Any]:
    """Named groups as they matched -> entities. Groups ``job``, ``step``, ``nodelist``, ``node`` and ``speed``/``unit``
    stand for several entities each; unknown names stay texts."""
    out: dict[str, Any] = {}
    for written, value in raw.items():
        name = written.rstrip("_")  # a regex may name a group only once: the second spelling of a place ends in "_"
        if not isinstance(value, str):
            out[name] = value
        elif name == "job":
            out |= job_ids(value)
        elif name == "step":
            out["step_id"] = step_name(value)
        elif name in ("nodelist", "node_names"):
            out["nodes"] = nodes_of(value)
            if "[" in value or "," in value:
                out["nodelist"] = value
        elif name == "short_node":
            out["nodes"] = [value.split(".")[0]]
        elif name == "speed":
            out |= _speed(value)
        elif name == "drain_reason":
            out["reason"] = value.strip()
            out |= {f"reason_{part}": text for part, text in split_reason(value).items()} if value.strip() else {}
        elif name in _INTS:
            out[name] = _number(value)
        elif name in _FLOATS:
            out[name] = float(value)
        elif name in _FLAGS:
            out[name] = True
        elif value and value not in ("<unknown>", "'<unknown>'"):
            out[name] = value.strip()
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
    return out


def tags_of(entities: dict[str, Any]) -> tuple[str, ...]:
    """Tags that follow from entities alone: of an Xid's kind, of a line that stands for several."""
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
    """NVIDIA writes Fatal, Non-fatal and Nonfatal; AER writes Corrected: the latter stays as written."""
    low = value.lower().replace("-", "")
    return low if low in ("fatal", "nonfatal") else value
