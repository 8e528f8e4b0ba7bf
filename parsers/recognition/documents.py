"""Recognises documents by their content. Each entry of ``DOCUMENTS`` is a kind, the reason for a person, and a test."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from parsers.documents import lldp_tables, sacct, tables
from parsers.documents.links_csv import columns as link_columns
from parsers.recognition.lines import first_lines


def _matches(pattern: str, lines: int = 5) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: any(compiled.match(line) for line in first_lines(text, lines))


def _is_table(kind: str) -> Callable[[str], bool]:
    return lambda text: any(tables.kind(line) == kind for line in first_lines(text, 3))


def _is_events(text: str) -> bool:
    line = (first_lines(text, 1) or [""])[0].lower()
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


def _is_polls(text: str) -> bool:
    hits = 0
    for line in first_lines(text, 20):
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
    lines = first_lines(text, 12)
    typed = re.compile(r"# (?:TYPE \S+ (?:counter|gauge|histogram|summary|untyped|unknown)\b|HELP \S+)")
    if any(typed.match(line) for line in lines):
        return True
    return len(lines) > 1 and all(_SAMPLE.match(line) for line in lines[:-1])


_SMI_COLUMN = re.compile(
    r"(?:timestamp|index|uuid|gpu_uuid|name|gpu_name|pci\.bus_id|pstate|serial|driver_version|(?:temperature|utilization|memory|power|clocks|"
    r"ecc|fan|retired_pages|remapped_rows|pcie|clocks_throttle_reasons|clocks_event_reasons|fabric|enforced)[\w.]+)(?: \[[^\]]+\])?"
)


def _is_smi_csv(text: str) -> bool:
    cells = [cell.strip() for cell in (first_lines(text, 1) or [""])[0].split(",")]
    known = sum(bool(_SMI_COLUMN.fullmatch(cell)) for cell in cells)
    return len(cells) >= 2 and known >= max(2, 0.8 * len(cells)) and any("." in cell for cell in cells)


def _is_links_csv(text: str) -> bool:
    line = (first_lines(text, 1) or [""])[0]
    found = link_columns(re.split(r"[,;\t]", line))
    return len(re.split(r"[,;\t]", line)) >= 3 and {"host", "device", "switch"} <= set(found)


def _lldp_table(text: str) -> str | None:
    """The kind of a table of LLDP neighbours; a prompt, a legend or totals may precede its header."""
    return next((kind for line in first_lines(text, 12) if (kind := lldp_tables.header_of(line))), None)


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


DOCUMENTS: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
    ("sacctmgr_events", "header of sacctmgr show event", _is_events),
    ("sacct", "header of sacct with JobID", lambda text: sacct.is_header(first_lines(text, 2))),
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
