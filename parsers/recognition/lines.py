"""Which source's log a file of lines is: by their shape, then by its name, then by their words."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import PurePosixPath

from parsers.recognition.result import Recognition


def first_lines(text: str, count: int) -> list[str]:
    """At most ``count`` lines that are not blank, of the first 200."""
    return [line for line in text.split("\n", 200)[:200] if line.strip()][:count]


def is_json_lines(text: str) -> bool:
    """Whether at least one line is a whole JSON object: then it is a log, whatever its name ends in."""
    line = (first_lines(text, 1) or [""])[0]
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


#: Pattern of the first lines -> source. Only unmistakable ones.
LINE_SHAPES: tuple[tuple[str, str], ...] = (
    ("ibdiagnet", r"-[IWE]- |-{20,}$"),
    ("opensm", r"[A-Z][a-z]{2} \d\d [\d:]{8} \d{6} \[[0-9A-F]{4,16}\] 0x[0-9a-f]{2} ->"),
    ("kmsg_json", r'\{.*"kmsg_us"\s*:'),
    ("kmsg", r"\d+,\d+,\d+,[-c+]"),
    ("ip_monitor", r"\[\d{4}-\d\d-\d\dT[\d:.]+\] (?:Deleted )?\d+: \S+: <"),
    ("central", r"\d{4}-\d\d-\d\dT\S+ \d{4}-\d\d-\d\dT\S+ \S+ [a-z]+[0-9]?\.[a-z]+ "),
    ("journald", r'\{.*"__REALTIME_TIMESTAMP"'),
    ("fabricmanager", r"\[[A-Z][a-z]{2} \d\d \d{4} [\d:]{8}\] \[(?:INFO|ERROR|WARNING|CRITICAL|DEBUG)\] \[tid \d+\]"),
    ("nhc", r"\d{8} [\d:]{8}.*\bnhc\b|\d{8} [\d:]{8} /\S*nhc"),
    ("ufm", r"\d{4}-\d\d-\d\d [\d:]{8}(?:\.\d+)? \[\d+\] \[\d+\] [A-Z]+ \["),
    ("healthagent", r"\d{4}-\d\d-\d\d [\d:]{8},\d+ - healthagent[\w.]* - "),
    (
        "storage",
        r"\d{4}-\d\d-\d\d_[\d:]{8}\S*: \[[A-Z]\] |\([0-5]\) (?:[A-Z][a-z]{2}\d\d )?[\d:]{8} \S+ \[.*\] >> |\d\d/\d\d/\d{4} [\d:]{8} : epoch ",
    ),
    ("loghub", r"(?:-|[A-Z][A-Z0-9_]*) \d{9,10} \d{4}\.\d\d\.\d\d |\d+ \S+ \S+ \S+ \d{9,10} -?\d+ "),
    (
        "dmesg",
        r"kern *:\w+ *: \d{4}-|(?:<\d+>)?\[\s*\d+\.\d{6}\] |\[[A-Z][a-z]{2} [A-Z][a-z]{2}\s+\d+ [\d:]{8} \d{4}\] ",
    ),
)
#: Prefix of a file's name -> source, if the content leaves it open.
NAMES: tuple[tuple[str, str], ...] = (
    (r"slurmctld", "slurmctld"), (r"slurmdbd", "slurmdbd"), (r"slurmrestd", "slurmrestd"), (r"slurmd(?!b)", "slurmd"),
    (r"opensm", "opensm"), (r"ibdiagnet\d?\.log", "ibdiagnet"), (r"ip-?monitor", "ip_monitor"), (r"central", "central"), (r"fabricmanager", "fabricmanager"),
    (r"nhc", "nhc"), (r"kmsg\.jsonl?", "kmsg_json"), (r"kmsg", "kmsg"), (r"dmesg", "dmesg"),
    (r"kern(?:\.log|$|-\d)", "kernel"), (r"(?:syslog|messages|auth\.log|secure|daemon\.log)", "syslog"),
    (r"jetpackd", "jetpackd"), (r"jetpack", "jetpack"), (r"healthagent", "healthagent"),
)  # fmt: skip
_SYSLOG = re.compile(
    r"(?:\d{1,6} )?(?:<\d{1,3}>)?(?:1 )?(?:\d{4}-\d\d-\d\dT\S+|[A-Z][a-z]{2} [ \d]\d [\d:]{8}(?:\.\d+)?) \S+ "
)
_JOB_WORDS = re.compile(
    r"(?:\s*\d+: )?(?:srun: |slurmstepd: error: |salloc: |[\w.-]+:\d+:\d+ \[\d+\] (?:\S+ )?NCCL |\[rank\d+\]:|Traceback \(most recent|# ?nThread \d+ nGpus )"
)
_SLURM = re.compile(r"\[\d{4}-\d\d-\d\dT[\d:.]+(?:[+-]\d\d:\d\d)?\] ")
_SLURMCTLD = re.compile(
    r"_slurm_rpc_|sched: |_job_complete|slurmctld|Recovered JobId|update_node: |backfill|node_did_resp"
)
_SLURMD = re.compile(r"Launching batch job|launch task |\[\d+\.(?:\d+|batch|extern)\]|slurmd |slurmstepd|done with job")


def of_lines(place: Recognition, path: PurePosixPath, text: str) -> Recognition:
    """A file of log lines: the source from its pattern, then from its name, then from its words."""
    lines = first_lines(text, 12) or [""]
    for source, pattern in LINE_SHAPES:
        if sum(bool(re.match(pattern, line)) for line in lines) * 2 >= max(1, len(lines)) or (
            source == "ip_monitor" and re.match(pattern, lines[0])
        ):
            return replace(place, kind="lines", source=source, reason=f"lines shaped as {source}")
    if place.source == "switch":
        return replace(place, kind="lines", reason="below switches/")
    for beginning, source in NAMES:
        if re.match(beginning, path.name.lower()):
            return replace(place, kind="lines", source=source, reason=f"named {path.name}")
    if _SLURM.match(lines[0]):
        source = "slurmctld" if len(_SLURMCTLD.findall(text)) >= len(_SLURMD.findall(text)) else "slurmd"
        return replace(place, kind="lines", source=source, reason=f"Slurm's own log, words of {source}")
    if any(_JOB_WORDS.match(line) for line in lines):
        return replace(place, kind="lines", source="job_stdout", reason="words that only a job's output has")
    if any(_SYSLOG.match(line) for line in lines):
        return replace(place, kind="lines", source="syslog", reason="syslog headers")
    return replace(place, kind="lines", source=None, reason="text that nothing else explains")
