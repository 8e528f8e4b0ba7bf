"""Which incidents ``faultline incidents`` lists."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from faultline.meant import meant


def none_of(stored: list[dict[str, Any]], host: str | None) -> str:
    """Why the list is empty although there are incidents: how many, when, and the host that may be meant."""
    hosts = {str(name) for i in stored for name in i["hosts"]}
    known = meant(host, hosts) if host and host not in hosts else ""
    first, last = min(i["start"] for i in stored), max(i["start"] for i in stored)
    return f"none of the {len(stored)} stored matches; they began {first[:19]}Z to {last[:19]}Z{known}"


def is_of(name: str, job: str) -> bool:
    """Whether a run, as documents name it, is of ``job``: the run itself, with its cluster (``@NAME``) or without, one of its restarts
    (``#N``), or, where ``job`` is the number of an array or of a heterogeneous job, any task (``_N``) or part (``+N``) of it."""
    of_cluster = name.split("#")[0]
    run = of_cluster.split("@")[0]
    return job in (name, of_cluster, run, re.split(r"[_+]", run)[0])


def touches(
    incident: dict[str, Any], low: datetime | None, high: datetime | None, host: str | None, job: str | None
) -> bool:
    """Whether an incident overlaps a range (naive UTC), touches a host and ended or slowed a job, each if it is given."""
    start, end = (datetime.fromisoformat(incident[k]).replace(tzinfo=None) for k in ("start", "end"))
    if (low and end < low) or (high and start > high) or (host and host not in incident["hosts"]):
        return False
    named = [*(j["job_id"] for j in incident["jobs"]), *incident["slowed_jobs"]]
    return job is None or any(is_of(name, job) for name in named)
