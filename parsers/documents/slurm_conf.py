"""slurm.conf and ``scontrol show config``: the site's own timeouts, which set the correlator's windows."""

from __future__ import annotations

import re

from parsers.documents.document import Document, Gathered, Line, split_lines
from parsers.record import Origin, Parsed

#: Slurm reads keys case-insensitively; these are the ones that others look up, as slurm.conf(5) spells them.
_CANONICAL = """
    AccountingStorageEnforce AccountingStorageHost AccountingStorageType BatchStartTimeout ClusterName CompleteWait
    DebugFlags EpilogSlurmctld Epilog GresTypes HealthCheckInterval HealthCheckNodeState HealthCheckProgram
    InactiveLimit JobAcctGatherFrequency JobAcctGatherType JobCompLoc JobCompType JobRequeue KillOnBadExit KillWait
    LaunchParameters LogTimeFormat MaxJobCount MessageTimeout MinJobAge MpiDefault NodeName OverTimeLimit PartitionName
    PreemptMode PreemptType PreemptExemptTime ProctrackType Prolog PrologEpilogTimeout PrologFlags PrologSlurmctld
    PrologTimeout EpilogTimeout RebootProgram RequeueExit RequeueExitHold ResumeProgram ResumeTimeout ReturnToService
    SchedulerType SelectType SlurmctldDebug SlurmctldHost SlurmctldLogFile SlurmctldParameters SlurmctldPort
    SlurmctldTimeout SlurmdDebug SlurmdLogFile SlurmdParameters SlurmdPort SlurmdSpoolDir SlurmdTimeout
    SlurmdSyslogDebug SlurmctldSyslogDebug StateSaveLocation SuspendTime SuspendTimeout TaskPlugin TaskProlog
    TaskEpilog TCPTimeout TopologyPlugin TreeWidth UnkillableStepProgram UnkillableStepTimeout WaitTime SwitchName
    BlockName DownNodes FrontendName NodeSet Include
"""
_KNOWN = {name.lower(): name for name in _CANONICAL.split()}
#: Lines that describe one of many objects: the setting's name includes which ("NodeName:gpu[01-04]").
_MANY = frozenset({"NodeName", "PartitionName", "NodeSet", "DownNodes", "FrontendName"})
_SHOWN = re.compile(r"^(?P<key>[A-Za-z]\w*(?:\[\d+\])?)\s*=\s?(?P<value>.*)$")


def logical_lines(data: bytes) -> list[tuple[Line, str]]:
    """Lines of a Slurm configuration without comments; a backslash at the end continues on the next line.

    Each comes with the physical line it starts on. ``\\#`` is a number sign, not a comment.
    """
    joined: list[tuple[Line, str]] = []
    first: Line | None = None
    text = ""
    for line in split_lines(data):
        first = first or line
        piece = re.sub(r"(?<!\\)#.*$", "", line.text).replace("\\#", "#").rstrip()
        if piece.endswith("\\"):
            text += piece[:-1] + " "
            continue
        text += piece
        if text.strip():
            joined.append((first, text.strip()))
        first, text = None, ""
    if first is not None and text.strip():
        joined.append((first, text.strip()))
    return joined


def _read_file(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    rows: list[dict[str, object]] = []
    for line, text in logical_lines(data):
        key, equals, value = (part.strip() for part in text.partition("="))
        if text.lower().startswith("include ") or key.lower() == "include":
            included = text[8:].strip().removeprefix("=").strip()
            gathered.warn(f"Include {included} is not followed; ingest that file too", line.number)
            rows.append({"name": "Include", "value": included, "line": line.number})
        elif not equals:
            gathered.keep_unread(line, f"no Key=Value: {text[:60]!r}")
        else:
            name = _KNOWN.get(key.lower(), key)
            if name in _MANY:
                which, _, rest = value.partition(" ")
                rows.append({"name": f"{name}:{which}", "value": rest.strip(), "line": line.number})
            else:
                rows.append({"name": name, "value": value.strip('"'), "line": line.number})
    _settle(rows, gathered)
    return gathered.parsed()


def _read_shown(kind: str, data: bytes, origin: Origin) -> Parsed:
    gathered = Gathered(kind, origin)
    rows: list[dict[str, object]] = []
    for line in split_lines(data):
        found = _SHOWN.match(line.text)
        if found:
            name = re.sub(r"\[\d+\]$", "", found["key"])
            rows.append({"name": _KNOWN.get(name.lower(), name), "value": found["value"].strip(), "line": line.number})
        elif line.text.strip():
            gathered.keep(line)
    _settle(rows, gathered)
    return gathered.parsed()


def _settle(rows: list[dict[str, object]], gathered: Gathered) -> None:
    """Assigns every value to the cluster that the same file names."""
    cluster = next((row["value"] for row in rows if row["name"] == "ClusterName" and row["value"]), None)
    for row in rows:
        line = row.pop("line")
        chosen = gathered.origin.cluster or cluster
        gathered.add("settings", row | {"scope": "cluster", "cluster": chosen, "line": line})


def _read(kind: str, data: bytes, origin: Origin) -> Parsed:
    return (_read_shown if kind == "scontrol_config" else _read_file)(kind, data, origin)


DOCUMENT = Document(kinds=("slurm_conf", "scontrol_config"), read=_read)
