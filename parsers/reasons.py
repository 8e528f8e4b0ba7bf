"""Splits the reason why a node was drained or downed: author, check, component, and the rest.

Reasons are free text. Slurm writes its own, health checks prefix their name, people write what they like.

>>> split_reason("NHC: check_fs_mount: /scratch not mounted")
{'owner': 'nhc', 'check': 'check_fs_mount', 'component': 'storage', 'detail': '/scratch not mounted'}
>>> split_reason("Low RealMemory (reported:1 < 100.00% of configured:2)")["owner"]
'slurm'
"""

from __future__ import annotations

import re

#: Prefix -> author. Tried in order.
_OWNERS = (
    ("nhc", re.compile(r"NHC(?: \([^)]*\))?[:\s-]+", re.IGNORECASE)),
    ("healthcheck", re.compile(r"(?:\[?HC\]?|health[ _-]?checks?(?: (?:failures?|failed))?)(?:[:\s-]+|$)", re.IGNORECASE)),
    ("healthagent", re.compile(r"health[ _]?agent[:\s-]+", re.IGNORECASE)),
    ("node-problem-detector", re.compile(r"\[node[_-]problem\][:\s]*|node-problem-detector[:\s]+", re.IGNORECASE)),
    ("nvsentinel", re.compile(r"\[?nvsentinel\]?[:\s-]+", re.IGNORECASE)),
    ("cyclecloud", re.compile(r"cyclecloud\w*[:\s]*", re.IGNORECASE)),
    ("parallelcluster", re.compile(r"\(Code:(?P<check>\w+)\)\s*")),
    ("slurm-operator", re.compile(r"slurm-(?:operator|bridge)[:\s]+", re.IGNORECASE)),
    ("kubernetes", re.compile(r"k8s[:\s]+|kubernetes[:\s]+", re.IGNORECASE)),
    ("faultline", re.compile(r"faultline[:\s]+", re.IGNORECASE)),
)  # fmt: skip
#: Reasons that slurmctld and slurmd write themselves.
_SLURM = re.compile(
    r"(?:Not responding|Node unexpectedly rebooted|Kill task failed|Prolog error|Epilog error|Prolog/Epilog failure|"
    r"(?:P|p)rolog hung|batch job complete failure|Low (?:RealMemory|TmpDisk|CPUs|socket)|gres/\w+ (?:count|GRES core)|"
    r"(?:Slurmd)?SpoolDir is full|ResumeTimeout reached|reboot (?:timed out|issued|complete)|Duplicate jobid|Bad core count|"
    r"Invalid (?:argument|gres)|launch failed|Job env setup error|none\b|undraining)",
    re.IGNORECASE,
)  # fmt: skip
#: Author -> the expression (RE2, case-insensitive, from the reason's first character) by which a query finds it, in the
#: order of ``split_reason``. What matches none is a person's: "admin".
OWNERS = tuple((name, pattern.pattern) for name, pattern in (*_OWNERS, ("slurm", _SLURM)))
_CHECK = re.compile(
    r"(?P<check>check_\w+|(?:prolog|epilog|dcgmi? diag|nccl[ _-]?tests?|ib_write_bw|gpu[ _-]?burn))\b[:\s-]*",
    re.IGNORECASE,
)
_NAMED_CHECK = re.compile(r"(?P<check>[A-Za-z][\w.-]{2,40}): +(?=\S)")
#: Words -> the part of the node that they refer to. The first match counts.
_COMPONENTS = (
    ("gpu", r"gpu|xid|nvlink|nvswitch|nvidia|dcgm|ecc\b|row.?remap|cuda|fabric.?manager"),
    ("network", r"\bib\d*\b|infiniband|mlx\d|\bhca|\bnic\b|\blinks?\b|network|\beth\d|\bport\b|roce|carrier"),
    ("storage", r"mount|disk|nvme|\bfs\b|_fs_|lustre|\bnfs|gpfs|beegfs|weka|storage|spool|quota|inode|i/o|tmpdisk"),
    ("memory", r"memory|\bmem\b|dimm|\bmce\b|oom|realmemory"),
    ("cpu", r"\bcpus?\b|socket|thread count|core count"),
    ("platform", r"power|psu|\bfans?\b|temperature|thermal|ipmi|bmc|bios"),
    ("hook", r"prolog|epilog|job env"),
    ("process", r"kill task failed|zombie|service|daemon|munge|slurmd\b"),
    ("node", r"not responding|reboot|boot|resume|resuming"),
)  # fmt: skip
_COMPILED = tuple((name, re.compile(text, re.IGNORECASE)) for name, text in _COMPONENTS)


def split_reason(text: str) -> dict[str, str]:
    """``owner`` (always), ``check``, ``component`` and ``detail`` if they can be determined. A person's words belong to
    "admin"."""
    rest = text.strip()
    owner = "slurm" if _SLURM.match(rest) else "admin"
    for name, pattern in _OWNERS:
        found = pattern.match(rest)
        if found:
            owner, rest = name, rest[found.end() :].strip()
            out = {"owner": owner} | ({"check": found["check"]} if "check" in pattern.groupindex else {})
            break
    else:
        out = {"owner": owner}
    found = _CHECK.match(rest) or (_NAMED_CHECK.match(rest) if owner not in ("slurm", "admin") else None)
    if found and "check" not in out:
        out["check"] = found["check"].lower()
        rest = rest[found.end() :].strip()
    component = next((name for name, pattern in _COMPILED if pattern.search(text)), None)
    if component:
        out["component"] = component
    if rest:
        out["detail"] = rest
    return out
