"""Recognises the type of a file, by its content first and its path second.

``recognise`` never opens a file: it gets the first bytes (already decompressed) and the path. Each result includes the
reason, so that ``faultline ingest`` can report it.

Files below ``jobs/`` were put there by users, with names and content of their choosing: they are that job's output,
script or environment, or nothing. No name and no content makes them the cluster's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath

from parsers import documents, extensions
from parsers.documents import counters, lldp_tables, sacct, tables
from parsers.documents.hook import MAGIC as HOOK_MAGIC
from parsers.documents.links_csv import columns as link_columns

PACKED = (".gz", ".xz", ".zst", ".bz2")


@dataclass(frozen=True)
class Recognition:
    """The recognised type of a file.

    ``kind``: "lines", a document kind of ``parsers.documents``, "binary", "script" (kept as an artifact only) or
    "skip". ``source`` is a hint for lines. ``host``, ``job_id`` and ``restarts`` come from the path. ``artifact`` is
    script, env, stdout or stderr for a file that a job left. ``reason`` explains the result to a person. ``of_job``: a
    job's file, which refers to ``job_id`` or to no job. ``claimed``: the job ID is in the file's own name, which its
    user chose, and not in a folder of the collector's.
    """

    kind: str
    source: str | None = None
    host: str | None = None
    job_id: int | None = None
    restarts: int | None = None
    artifact: str | None = None
    reason: str = ""
    of_job: bool = False
    claimed: bool = False


def recognise(path: Path | str, head: bytes, root: Path | None = None) -> Recognition:
    """Recognises a file by ``head``, its first bytes (at most 64 KiB, already decompressed), and by its path.

    ``root`` is the path that the user named: folders above it are ignored. Never raises on content.
    """
    inner, above = _inner(path, root)
    place = _place(inner, above, whole_tree=root is not None)
    name = inner.name
    if name.lower() in _NEVER:
        return replace(place, kind="skip", artifact=None, reason=_NEVER[name.lower()])
    if not head.removeprefix(b"\xef\xbb\xbf").strip():
        return replace(place, kind="lines", reason="empty")
    if place.of_job:
        return _of_job(place, inner, head)
    if head.startswith(HOOK_MAGIC):
        return replace(place, kind="hook_spool", reason="begins with faultline-hook/1")
    binary = _binary(head)
    if binary:
        return replace(place, kind="binary", source=None, artifact=None, reason=binary)
    if any(shape.search(inner.as_posix()) for shape in (counters.PORT_FILE, counters.NET_FILE, counters.DEVICE_FILE)):
        return replace(place, kind="sysfs_file", reason="a file of /sys/class: its path says which counter it is")
    text = head.decode("utf-8", "replace").removeprefix("﻿")
    if of_package := _of_package(inner, text):
        return replace(place, kind=of_package, source=None, reason="a document of an installed package")
    for kind, why, fits in _DOCUMENTS:
        if fits(text):
            return replace(place, kind=kind, source=None, reason=why)
    if name.lower().endswith(_NO_LOGS) and not _is_json_lines(text):
        return replace(place, kind="skip", source=None, reason="neither logs nor a document known here")
    return _lines(place, inner, text)


def _of_package(inner: PurePosixPath, text: str) -> str | None:
    """The kind that a family of an installed package claims; one that fails on a file is logged, and has not recognised
    it."""
    for called, document in documents.installed().items():
        assert document.recognises is not None
        try:
            kind = document.recognises(inner, text)
        except Exception as error:
            extensions.warn_once(f"{called}: recognises({inner}) raised {extensions.described(error)}")
            continue
        if kind in document.kinds:
            return kind
        if kind is not None:
            extensions.warn_once(
                f"{called}: recognises({inner}) gave {kind!r}, which is none of its kinds: {', '.join(document.kinds)}"
            )
    return None


def _of_job(place: Recognition, inner: PurePosixPath, head: bytes) -> Recognition:
    """A file that a job's user wrote: its location gives the type, and its content at most shows that it is not
    text."""
    if place.artifact == "env":
        return replace(place, kind="job_env", reason="an env file in a job's folder")
    whose = f"job {place.job_id}" if place.job_id is not None else "a job whose number is not told"
    if binary := _binary(head):
        return replace(place, kind="skip", source=None, artifact=None, reason=f"of {whose}: {binary}")
    if place.artifact:
        kind = "script" if place.artifact == "script" else "lines"
        return replace(place, kind=kind, reason=f"{place.artifact} of {whose}")
    if inner.name.lower().endswith(_NO_LOGS):
        return replace(place, kind="skip", source=None, reason=f"of {whose}: no output, script.sh or env")
    return replace(place, kind="lines", reason=f"below jobs/: words of {whose}, whatever it is named and holds")


def _inner(path: Path | str, root: Path | None) -> tuple[PurePosixPath, int]:
    """The path below ``root`` without compression suffixes, and how many of its folders are ``root``'s own."""
    whole, above = PurePosixPath(path), 0
    if root is not None:
        base = PurePosixPath(root)
        # A folder's own name may be significant ("captures/oom", "nodes/gpu01"): its parents stay visible.
        if whole != base and whole.is_relative_to(base):
            # All of them inside a job's folder: a user chose the names there.
            job = next(
                (at for at, (a, b) in enumerate(pairwise(base.parts)) if a == "jobs" and _NUMBER.fullmatch(b)), None
            )
            kept = base.parts[job:] if job is not None else base.parts[-2:]
            whole, above = PurePosixPath(*kept) / whole.relative_to(base), len(kept)
    while whole.suffix in PACKED:
        whole = whole.with_suffix("")
    return whole, above


_NEVER = {
    "truth.json": "an answer key, never read", "readme": "documentation", "readme.md": "documentation",
    "readme.txt": "documentation", "license": "documentation", "manifest.csv": "documentation",
    "labels.json": "an answer key, never read",
}  # fmt: skip
_NO_LOGS = (".md", ".toml", ".yaml", ".yml", ".py", ".xml", ".html", ".json")
_HOST_FOLDERS = frozenset({"hosts", "nodes", "switches", "metrics"})
#: A job ID: more digits are not one, and would not fit into the store.
_NUMBER = re.compile(r"[0-9]{1,18}")
_JOB_OUTPUT = re.compile(
    r"(?:(?P<name>.+)-|slurm-|job[-_.]?)(?P<job>[0-9]{1,18})(?:_[0-9]+|\.[0-9]+)?\.(?P<kind>out|err|log)", re.DOTALL
)
_JOB_FILES = {
    "stdout": "stdout", "stderr": "stderr", "script.sh": "script", "script": "script", "env": "env",
    "stdout.log": "stdout", "stderr.log": "stderr", "environment": "env",
}  # fmt: skip


def _place(path: PurePosixPath, above: int, whole_tree: bool) -> Recognition:
    """What the path alone gives: host and job."""
    parts = path.parts
    jobs = _jobs_folder(parts, above, whole_tree)
    machines = parts if jobs is None else parts[: jobs + 1]
    host = None
    for folder, below in pairwise(machines):
        if folder in _HOST_FOLDERS and below != parts[-1] and below != "jobs":
            host = below
        elif folder == "controller" and host is None:
            host = "controller"
    if jobs is not None:
        return replace(_below_jobs(parts[jobs + 1 :]), host=host)
    output = _JOB_OUTPUT.fullmatch(parts[-1]) if parts else None
    if output and parts[-1].startswith("slurm-"):
        return replace(_claimed(output), host=host)
    source = "switch" if "switches" in parts[:-1] else None
    return Recognition("", source=source, host=host)


def _jobs_folder(parts: tuple[str, ...], above: int, whole_tree: bool) -> int | None:
    """The index of the jobs folder in ``parts``, whose first ``above`` are the path that the user named and its parent.
    It is the first of that name: a deeper one was created by a user. A single path (not ``whole_tree``) is not known to
    be in a log tree."""
    for at, part in enumerate(parts[:-1]):
        below = parts[at + 1]
        if part != "jobs":
            continue
        if _NUMBER.fullmatch(below) and at + 2 < len(parts):
            return at
        if (whole_tree and at >= above - 1) or (at + 2 == len(parts) and _JOB_OUTPUT.fullmatch(below)):
            return at
    return None


def _below_jobs(below: tuple[str, ...]) -> Recognition:
    """JOBID[/restart-N]/FILE and NAME-JOBID.out below the jobs folder; anything else is job output."""
    name = below[-1]
    if len(below) == 1:
        output = _JOB_OUTPUT.fullmatch(name)
        return _claimed(output) if output else Recognition("", source="job_stdout", of_job=True)
    if not _NUMBER.fullmatch(below[0]):
        return Recognition("", source="job_stdout", of_job=True)
    again = re.fullmatch(r"restart-([0-9]{1,9})", below[1]) if len(below) > 2 else None
    artifact = _JOB_FILES.get(name)
    if len(below) > 2 + bool(again) and artifact not in ("stdout", "stderr"):
        artifact = None
    source = None if artifact in ("script", "env") else "job_stdout"
    return Recognition(
        "", source=source, job_id=int(below[0]), restarts=int(again[1]) if again else 0, artifact=artifact, of_job=True
    )


def _claimed(output: re.Match[str]) -> Recognition:
    artifact = "stderr" if output["kind"] == "err" else "stdout"
    return Recognition("", source="job_stdout", job_id=int(output["job"]), artifact=artifact, of_job=True, claimed=True)


# ---------------------------------------------------------------------------------------------------- not text

_MAGICS = {
    b"\x7fELF": "an ELF program or core dump", b"\x1f\x8b": "still gzip inside", b"PAR1": "Parquet",
    b"\x28\xb5\x2f\xfd": "still zstd inside", b"\xfd7zXZ\x00": "still xz inside", b"BZh": "bzip2",
    b"LPKSHHRH": "a systemd journal: use journalctl -o export or journald upload", b"SQLite format 3\0": "SQLite",
    b"\x89PNG": "an image", b"%PDF": "PDF",
}  # fmt: skip


def archive_of(head: bytes) -> str | None:
    """The kind of multi-file archive that begins like this; None if it is none."""
    if head[257:262] == b"ustar":  # POSIX.1-1988 and GNU alike
        return "a tar archive"
    return "a zip archive" if head.startswith(b"PK\x03\x04") else None


def _binary(head: bytes) -> str | None:
    """Why the content is not text; a few NULs (a log truncated by a power loss) still are text."""
    if archive := archive_of(head):
        return f"{archive} of several files: unpack it into a folder and ingest that"
    for magic, what in _MAGICS.items():
        if head.startswith(magic):
            return what
    nulls = head.count(0)
    if nulls > 8 and nulls > len(head) // 20 and not _holed(head):
        return f"{nulls} NUL bytes in the first {len(head)}"
    control = sum(head.count(byte) for byte in (1, 2, 3, 4, 5, 6, 14, 15, 16, 17, 18, 19, 20))
    return f"{control} control bytes in the first {len(head)}" if control > len(head) // 32 else None


def _holed(head: bytes) -> bool:
    """One run of NULs between lines of text: what a file system leaves in a log after a power loss."""
    rest = re.sub(rb"\x00{8,}", b"", head)
    return b"\0" not in rest and b"\n" in rest


# ---------------------------------------------------------------------------------------------- documents by content


def _first_lines(text: str, count: int) -> list[str]:
    return [line for line in text.split("\n", 200)[:200] if line.strip()][:count]


def _matches(pattern: str, lines: int = 5) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: any(compiled.match(line) for line in _first_lines(text, lines))


def _is_table(kind: str) -> Callable[[str], bool]:
    return lambda text: any(tables.kind(line) == kind for line in _first_lines(text, 3))


def _is_events(text: str) -> bool:
    line = (_first_lines(text, 1) or [""])[0].lower()
    return "|timestart" in line and "nodename" in line


def _json_shape(text: str) -> str | None:
    """The document kind of a JSON object by its keys; the head may end in the middle of it."""
    if not text.lstrip().startswith("{"):
        return None
    if re.search(r'"type"\s*:\s*"openapi\\?/(?:dbv|slurmdbd)', text):
        return "sacct_json"
    if re.search(r'"jobs"\s*:\s*\[', text):
        if re.search(r'"job_state"\s*:', text):
            return "rest_jobs"
        if re.search(r'"(?:association|derived_exit_code|allocation_nodes|submission)"\s*:', text):
            return "sacct_json"
        return "rest_jobs" if re.search(r'"(?:last_update|accrue_time)"\s*:', text) else None
    if re.search(r'"nodes"\s*:\s*\[\s*(?:\{|\])', text) and re.search(
        r'"(?:architecture|last_update|hostname)"|openapi', text
    ):
        return "rest_nodes"
    if re.search(r'"partitions"\s*:\s*\[\s*(?:\{|\])', text) and re.search(
        r'"(?:node_sets|grace_time|maximums)"', text
    ):
        return "rest_partitions"
    if re.search(r'"pings"\s*:\s*\[\s*\{[^\]]*"hostname"', text):
        return "rest_ping"
    # An answer that holds only errors: its reader reports them.
    return "rest_nodes" if re.search(r'"type"\s*:\s*"openapi\\?/', text) and '"errors"' in text else None


def _is_json_lines(text: str) -> bool:
    """Whether at least one line is a whole JSON object: then it is a log, whatever its name ends in."""
    line = (_first_lines(text, 1) or [""])[0]
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _is_polls(text: str) -> bool:
    hits = 0
    for line in _first_lines(text, 20):
        try:
            row = json.loads(line)
        except ValueError:
            return hits > 0
        if not isinstance(row, dict) or not ("t" in row or "time" in row):
            return False
        hits += "node" in row and "state" in row
        if not (("node" in row or "job" in row or "job_id" in row) and "state" in row):
            return False
    return hits > 0


_SAMPLE = re.compile(
    r"[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{(?:[a-zA-Z_]\w*=\".*\",?)*\})?\s+[-+]?(?:\d[\d.eE+-]*|Inf|NaN)(?:\s+-?\d+)?\s*$"
)


def _is_prometheus(text: str) -> bool:
    lines = _first_lines(text, 12)
    typed = re.compile(r"# (?:TYPE \S+ (?:counter|gauge|histogram|summary|untyped|unknown)\b|HELP \S+)")
    if any(typed.match(line) for line in lines):
        return True
    return len(lines) > 1 and all(_SAMPLE.match(line) for line in lines[:-1])


_SMI_COLUMN = re.compile(
    r"(?:timestamp|index|uuid|gpu_uuid|name|gpu_name|pci\.bus_id|pstate|serial|driver_version|(?:temperature|utilization|memory|power|clocks|"
    r"ecc|fan|retired_pages|remapped_rows|pcie|clocks_throttle_reasons|clocks_event_reasons|fabric|enforced)[\w.]+)(?: \[[^\]]+\])?"
)


def _is_smi_csv(text: str) -> bool:
    cells = [cell.strip() for cell in (_first_lines(text, 1) or [""])[0].split(",")]
    known = sum(bool(_SMI_COLUMN.fullmatch(cell)) for cell in cells)
    return len(cells) >= 2 and known >= max(2, 0.8 * len(cells)) and any("." in cell for cell in cells)


def _is_links_csv(text: str) -> bool:
    line = (_first_lines(text, 1) or [""])[0]
    found = link_columns(re.split(r"[,;\t]", line))
    return len(re.split(r"[,;\t]", line)) >= 3 and {"host", "device", "switch"} <= set(found)


def _lldp_table(text: str) -> str | None:
    """The kind of a table of LLDP neighbours; a prompt, a legend or totals may precede its header."""
    return next((kind for line in _first_lines(text, 12) if (kind := lldp_tables.header_of(line))), None)


def _is_lldp(kind: str) -> Callable[[str], bool]:
    return lambda text: _lldp_table(text) == kind


_CONF_KEY = re.compile(
    r"(?i)(?:ClusterName|SlurmctldHost|ControlMachine|SlurmdTimeout|SlurmctldPort|NodeName|PartitionName|AuthType|"
    r"ProctrackType|ReturnToService|SelectType|StateSaveLocation|SlurmUser|MpiDefault|Include)[\s=]"
)


def _is_slurm_conf(text: str) -> bool:
    lines = [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    keys = {found[0].lower() for line in lines if (found := _CONF_KEY.match(line.strip()))}
    shaped = sum(bool(re.match(r"\s*(?:[A-Za-z]\w*\s*=|include\s|\{)", line)) for line in lines)
    return len(keys) >= 2 and shaped >= 0.8 * len(lines)


def _is_topology(text: str) -> bool:
    joined = re.sub(r"\\\r?\n", " ", text)
    lines = [line.strip() for line in joined.split("\n") if line.strip() and not line.lstrip().startswith("#")][:20]
    return bool(lines) and all(
        re.match(
            r"(?i)(?:(?:switch|block)?name\s*=\s*\S+\s+(?:nodes|switches|linkspeed|level)\s*=|blocksizes\s*=)", line
        )
        for line in lines[:-1] or lines
    )


_DOCUMENTS: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
    ("sacctmgr_events", "header of sacctmgr show event", _is_events),
    ("sacct", "header of sacct with JobID", lambda text: sacct.is_header(_first_lines(text, 2))),
    ("sacct_json", "JSON of sacct or slurmdbd", lambda text: _json_shape(text) == "sacct_json"),
    ("rest_jobs", "JSON of slurmrestd: jobs", lambda text: _json_shape(text) == "rest_jobs"),
    ("rest_nodes", "JSON of slurmrestd: nodes", lambda text: _json_shape(text) == "rest_nodes"),
    ("rest_partitions", "JSON of slurmrestd: partitions", lambda text: _json_shape(text) == "rest_partitions"),
    ("rest_ping", "JSON of slurmrestd: ping", lambda text: _json_shape(text) == "rest_ping"),
    ("link_counters", "JSON of ip -s -j link", lambda text: bool(
        re.match(r'\s*\[\s*\{[^\[{]*"ifname"\s*:', text) or re.match(r'\s*\[\s*\{\s*"ifindex"\s*:', text))),
    ("node_polls", "JSON lines with node and state", _is_polls),
    ("jobcomp", "lines of jobcomp/filetxt", _matches(r"JobId=\d+ UserId=\S*\(\d+\) GroupId=.* JobState=", 1)),
    ("scontrol_jobs", "records of scontrol show job", _matches(
        r"JobId=\d+ (?:(?:Array|Het|Pack)Job\w+=\S+ .*)?JobName=|JobId=\d+ (?:Array|Het|Pack)Job\w+=", 1)),
    ("scontrol_nodes", "records of scontrol show node", lambda text: bool(
        re.match(r"\s*NodeName=\S+ (?:Arch=|CoresPerSocket=|CPUAlloc=)|\s*NodeName=\S+ *\r?\n +\w+=", text))),
    ("scontrol_config", "output of scontrol show config", _matches(r"Configuration data as of ", 3)),
    ("sdiag", "output of sdiag", _matches(r"sdiag output at ", 3)),
    ("squeue", "table of squeue", _is_table("squeue")),
    ("sinfo", "table of sinfo", _is_table("sinfo")),
    ("nvidia_smi_csv", "header of nvidia-smi --query-gpu", _is_smi_csv),
    ("links_csv", "header with node, nic and switch", _is_links_csv),
    ("topology_conf", "SwitchName= or BlockName= lines", _is_topology),
    ("topology_yaml", "topologies of topology.yaml", lambda text: bool(
        re.search(r"^-\s+topology\s*:", text, re.MULTILINE)
        and re.search(r"^\s+(?:tree|block|flat|torus|ring)\s*:", text, re.MULTILINE))),
    ("slurm_conf", "keys of slurm.conf", _is_slurm_conf),
    ("slurm_conf", "records of scontrol show partition", _matches(r"PartitionName=\S+(?: Allow\w+=|$)", 1)),
    ("hook_env", "environment of a Slurm hook", lambda text: bool(
        re.search(r"^SLURM_SCRIPT_CONTEXT=(?:pro|epi)log", text, re.MULTILINE)
        and re.search(r"^SLURM_JOB_?ID=\d+", text, re.MULTILINE))),
    ("nvidia_smi_xml", "XML of nvidia-smi", lambda text: "<nvidia_smi_log" in text[:2000]),
    ("nvidia_smi_q", "header of nvidia-smi -q", _matches(r"=+NVSMI LOG=+", 3)),
    ("nvidia_smi_nvlink", "links of nvidia-smi nvlink", lambda text: bool(
        re.match(r"\s*GPU \d+: .* \(UUID: GPU-[0-9a-f-]+\)\r?\n\s+Link \d+: ", text))),
    ("nvidia_smi_topo", "matrix of nvidia-smi topo -m", lambda text: bool(
        re.search(r"^(?:\x1b\[\S+m)?GPU0\s(?:\x1b\S+|\s)*X(?:\s|$)", text[:4000], re.MULTILINE))),
    ("nvidia_smi_list", "list of nvidia-smi -L", _matches(r"GPU \d+: .* \(UUID: GPU-[0-9a-f-]+\)", 1)),
    ("nvidia_smi_dmon", "table of nvidia-smi dmon", _matches(r"#(?:\s*Date\s+Time)?\s*gpu\s+(?!.*\bpid\b)[a-z]", 2)),
    ("nvidia_smi_pmon", "table of nvidia-smi pmon", _matches(r"#(?:\s*Date\s+Time)?\s*gpu\s+pid\s", 2)),
    ("nvidia_smi_table", "table of nvidia-smi", _matches(r"\| NVIDIA-SMI \d", 5)),
    ("ibstat", "output of ibstat", _matches(r"CA '[^']+'$", 2)),
    ("ibstatus", "output of ibstatus", _matches(r"Infiniband device '[^']+' port \d+ status:", 2)),
    ("ibv_devinfo", "output of ibv_devinfo", _matches(r"hca_id:\s*\S+$", 2)),
    ("iblinkinfo", "output of iblinkinfo", lambda text: bool(re.search(r"\d+\[\s*\] ==\([^)]*\)==>", text))),
    ("ibnetdiscover", "output of ibnetdiscover", lambda text: "# Topology file: generated on" in text[:200] or bool(
        re.match(r'vendid=0x|(?:Switch|Ca)\s+\d+\s+"[SH]-[0-9a-f]+"', text))),
    ("lldpctl", "output of lldpctl", lambda text: bool(
        re.search(r"^Interface:\s+[^\s,]+, via: ", text, re.MULTILINE) or re.search(r"^LLDP neighbors:\s*$", text[:400], re.MULTILINE))),
    ("lldpctl_keyvalue", "output of lldpctl -f keyvalue", _matches(r"lldp\.\S+?\.(?:via|rid|age|chassis\.\S+|port\.\S+)=")),
    ("lldpctl_json", "output of lldpctl -f json", lambda text: bool(re.match(
        r'[^{]{0,200}\{\s*"lldp"\s*:\s*(?:\[\s*)?\{\s*(?:\}|"interface"\s*:)', text))),
    ("lldpctl_xml", "output of lldpctl -f xml", lambda text: bool(re.search(r"<lldp label=.LLDP neighbors", text[:400]))),
    ("eos_lldp_json", "JSON of show lldp neighbors", lambda text: '"lldpNeighbors"' in text and text.find("{") in range(200)),
    *((kind, "header of a table of LLDP neighbours", _is_lldp(kind)) for kind in lldp_tables.TABLES),
    ("perfquery", "output of perfquery", _matches(r"# (?:Port|Extended Port|Port extended) counters: L", 2)),
    ("ibqueryerrors", "output of ibqueryerrors", _matches(r'Errors for (?:0x[0-9a-f]+ )?"', 3)),
    ("mlxlink", "output of mlxlink", lambda text: "Operational Info" in text[:400] and "Physical state" in text[:1000]),
    ("dcgm_diag", "table of dcgmi diag", lambda text: "| Diagnostic " in text[:2000] and "+---" in text[:2000]),
    ("dcgm_health", "report of dcgmi health", lambda text: "Health Monitor Report" in text[:2000]),
    ("dcgm_dmon", "table of dcgmi dmon", _matches(r"# ?Entity\s+[A-Z]", 2)),
    ("ethtool_statistics", "output of ethtool -S", _matches(r"NIC statistics:", 1)),
    ("ethtool_settings", "output of ethtool", _matches(r"Settings for \S+:\s*$", 1)),
    ("ethtool_driver", "output of ethtool -i", lambda text: bool(re.match(r"driver: \S+\r?\nversion: ", text))),
    ("ethtool_module", "output of ethtool -m", _matches(r"\s*Identifier\s+: 0x[0-9a-f]{2} \(", 2)),
    ("sysfs_dump", "paths below /sys/class with values", _matches(r"\S*class/(?:infiniband|net)/\S+/\S+:", 3)),
    ("journal_export", "records of journalctl -o export", _matches(
        r"__(?:CURSOR=s|REALTIME_TIMESTAMP|MONOTONIC_TIMESTAMP)=|_BOOT_ID=[0-9a-f]{32}$", 1)),
    ("journal_verbose", "records of journalctl -o verbose", _matches(
        r"\S{1,12} \d{4}-\d\d-\d\d [\d:.]+ \S+ \[s=[0-9a-f]+;", 3)),
    ("journal_pretty", "records of journalctl -o json-pretty", lambda text: bool(
        re.match(r'\s*\{\s*\n\s+"[A-Z_]+"\s*:', text)) and '"MESSAGE"' in text),
    ("log_search", "answer of Loki or Elasticsearch", lambda text: bool(re.match(
        r'\s*\{.{0,400}?(?:"resultType"\s*:\s*"streams"|"hits"\s*:\s*\{.{0,200}?"hits"\s*:\s*\[)', text, re.DOTALL))),
    ("prometheus", "Prometheus text", _is_prometheus),
)  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- lines

#: Pattern of the first lines -> source. Only unmistakable ones.
_LINE_SHAPES: tuple[tuple[str, str], ...] = (
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
_NAMES: tuple[tuple[str, str], ...] = (
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


def _lines(place: Recognition, path: PurePosixPath, text: str) -> Recognition:
    """A file of log lines: the source from its pattern, then from its name, then from its words."""
    lines = _first_lines(text, 12) or [""]
    for source, pattern in _LINE_SHAPES:
        if sum(bool(re.match(pattern, line)) for line in lines) * 2 >= max(1, len(lines)) or (
            source == "ip_monitor" and re.match(pattern, lines[0])
        ):
            return replace(place, kind="lines", source=source, reason=f"lines shaped as {source}")
    if place.source == "switch":
        return replace(place, kind="lines", reason="below switches/")
    for beginning, source in _NAMES:
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
