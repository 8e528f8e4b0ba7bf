"""A small cluster on which a user writes arbitrary text to every place that users can write to.

alice's job 41 runs on gx01, together with frank's. Elsewhere bob's program fails by itself, the cause of erin's failure
is unknown, dave's is fine, and carol's ends with the link of its node. What alice writes must change none of that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from collector.decoding import _rows
from collector.ingest import Ingest
from collector.receivers import all_receivers
from collector.receivers.base import Decoded, Payload, micros
from correlator.engine import correlate, result
from parsers.patterns import load
from store import open_store
from store.line_frames import logs_for_storage
from tests.line_parser import line_parser, remembering

ALICES, VICTIM = 41, "gx02"
#: Within alice's job: the end of carol's, and of everybody else's.
MOMENTS = ("2026-02-28T10:11:58", "2026-02-28T10:19:57")
_SACCT = "JobID|JobIDRaw|User|UID|JobName|State|ExitCode|Submit|Start|End|NodeList|NNodes|Cluster\n" + "".join(
    f"{job}|{job}|{user}|{uid}|train|{state}|{code}|2026-02-28T09:59:00|2026-02-28T10:00:00|2026-02-28T{end}|{node}|1|c\n"
    for job, user, uid, state, code, end, node in (
        (41, "alice", 1001, "FAILED", "1:0", "10:20:00", "gx01"), (42, "bob", 1002, "FAILED", "1:0", "10:20:00", "gx02"),
        (43, "carol", 1003, "NODE_FAIL", "0:0", "10:12:00", "gx03"), (44, "dave", 1004, "COMPLETED", "0:0", "10:20:00", "gx04"),
        (45, "erin", 1005, "FAILED", "1:0", "10:20:00", "gx02"), (46, "frank", 1006, "FAILED", "1:0", "10:20:00", "gx01"),
    )
)  # fmt: skip
_TREE = {
    "slurm.conf": "ClusterName=c\nSlurmctldHost=ctl\nSlurmdTimeout=60\nNodeName=gx[01-04] NodeAddr=10.0.0.[1-4] CPUs=8\nPartitionName=p Nodes=ALL\n",
    "inventory/links.csv": "node,nic,switch,switch_port\n" + "".join(f"gx0{n},eth0,leaf1,Ethernet{n}\n" for n in range(1, 5)),
    "accounting/sacct.txt": _SACCT,
    "accounting/names.txt": _SACCT.partition("\n")[0] + "\n",
    "controller/slurmctld.log": "".join(f"[2026-02-28T10:00:00.00{job - 40}] sched: Allocate JobId={job} NodeList={node} #CPUs=1 Partition=p\n" for job, node in
        ((41, "gx01"), (42, "gx02"), (43, "gx03"), (44, "gx04"), (45, "gx02"), (46, "gx01"))) +
        "[2026-02-28T10:12:00.100] error: Nodes gx03 not responding, setting DOWN\n[2026-02-28T10:12:00.101] Killing JobId=43 on failed node gx03\n",
    **{f"nodes/gx0{n}/syslog": f"Feb 28 09:50:00 gx0{n} systemd[1]: Started Session 1 of user root.\nFeb 28 10:25:00 gx0{n} systemd[1]: Started Session 2 of user root.\n"
       for n in (2, 4)},
    # Its kernel writes an uptime into every line, as those of Debian and Ubuntu do.
    "nodes/gx01/syslog": "".join(f"Feb 28 09:4{n}:00 gx01 kernel: [{7200 + 60 * n}.000100] audit: backlog limit exceeded\n" for n in range(4)) +
        "Feb 28 09:50:00 gx01 systemd[1]: Started Session 1 of user root.\nFeb 28 10:25:00 gx01 systemd[1]: Started Session 2 of user root.\n",
    "nodes/gx03/syslog": "Feb 28 09:50:00 gx03 systemd[1]: Started Session 1.\nFeb 28 10:10:55 gx03 kernel: [9000.5] mlx5_core 0000:c4:00.0 eth0: Link down\n"
                         "Feb 28 10:14:00 gx03 kernel: [9185.5] mlx5_core 0000:c4:00.0 eth0: Link up\n",
    "jobs/42/stderr": "2026-02-28 10:19:58,000 - ERROR - loading\nTraceback (most recent call last):\nValueError: bad input\n",
    "jobs/46/stderr": "Traceback (most recent call last):\nKeyError: 'x'\n",
    "jobs/41/stdout": "", "jobs/41/stderr": "",
}  # fmt: skip


@dataclass(frozen=True)
class Channel:
    """A channel for alice's texts.

    ``place``: a file of the tree, or a receiver; ``line`` makes what she writes from a text and a moment.
    """

    name: str
    place: str
    line: Callable[[str, str], str]


def _bsd(at: str) -> str:
    return f"Feb 28 {at[11:]}"


def _epoch(at: str, factor: int = 1) -> int:
    return (micros(at + "Z") or 0) * factor // 1_000_000


def _json(**fields: Any) -> str:
    return json.dumps(fields)


def _journal(text: str, at: str, **more: str) -> str:
    return json.dumps(
        {"_HOSTNAME": VICTIM, "__REALTIME_TIMESTAMP": str(_epoch(at, 10**6)), "PRIORITY": "3", **more, "MESSAGE": text}
    )


def _as_logs() -> Iterator[tuple[str, Callable[[str, str], str]]]:
    """Lines as in logs of hosts."""
    yield "plain", lambda x, at: x
    yield "stamped", lambda x, at: f"{at.replace('T', ' ')},123 - ERROR - {x}"
    yield "kernel:", lambda x, at: f"kernel: {x}"
    yield "dmesg", lambda x, at: f"[ 9123.456789] {x}"
    yield "dmesg -r", lambda x, at: f"<3>[ 9123.456789] {x}"
    yield "dmesg -T", lambda x, at: f"[Sat Feb 28 {at[11:]} 2026] {x}"
    yield "dmesg -x", lambda x, at: f"kern  :err   : [ 9123.456789] {x}"
    yield "kmsg", lambda x, at: f"3,1234,9123456789,-;{x}"
    yield (
        "kmsg json",
        lambda x, at: _json(
            read_at=_epoch(at), facility=0, severity=3, seq=1, kmsg_us=9123456789, text=f"[minislurm:{VICTIM}] {x}"
        ),
    )
    for program in ("kernel", "slurmctld[77]", "slurmd[77]", "systemd[1]", "nvidia-persistenced[7]"):
        yield f"rfc3164 {program}", lambda x, at, p=program: f"{_bsd(at)} {VICTIM} {p}: {x}"
        yield f"rfc3164 <3> {program}", lambda x, at, p=program: f"<3>{_bsd(at)} {VICTIM} {p}: {x}"
        yield f"rfc3339 {program}", lambda x, at, p=program: f"{at}.5+00:00 {VICTIM} {p}: {x}"
    yield "rfc5424", lambda x, at: f"<3>1 {at}Z {VICTIM} kernel - - - {x}"
    yield "log host", lambda x, at: f"{at}+00:00 {at}+00:00 {VICTIM} kern.err kernel {x}"
    yield "switch", lambda x, at: f"<187>{_bsd(at)} leaf1 Ebra: {x}"
    yield "slurm file", lambda x, at: f"[{at}.100] {x}"
    yield "slurm bare", lambda x, at: f"slurmctld: {x}"
    yield "opensm", lambda x, at: f"{_bsd(at)} 123456 [7F6700] 0x01 -> {x}"
    yield "fabricmanager", lambda x, at: f"[Feb 28 2026 {at[11:]}] [ERROR] [tid 12] {x}"
    yield "healthagent", lambda x, at: f"{at.replace('T', ' ')},123 - healthagent - ERROR - {x}"
    yield (
        "journald kernel",
        lambda x, at: _journal(x, at, SYSLOG_IDENTIFIER="kernel", _TRANSPORT="kernel", SYSLOG_FACILITY="0"),
    )
    yield (
        "journald slurmctld",
        lambda x, at: _journal(x, at, SYSLOG_IDENTIFIER="slurmctld", _SYSTEMD_UNIT="slurmctld.service"),
    )


def _as_records() -> Iterator[tuple[str, Callable[[str, str], str]]]:
    """Lines as log shippers wrap them."""
    yield "docker", lambda x, at: _json(log=f"{_bsd(at)} {VICTIM} kernel: {x}\n", stream="stderr", time=f"{at}Z")
    yield "container", lambda x, at: f"{at}.123456789Z stderr F {_bsd(at)} {VICTIM} kernel: {x}"
    yield "console", lambda x, at: f"[{at}+00:00] [ 9123.456789] {x}"
    yield (
        "beats",
        lambda x, at: json.dumps(
            {"@timestamp": f"{at}Z", "host": {"name": VICTIM}, "process": {"name": "kernel"}, "message": x}
        ),
    )
    yield (
        "rsyslog json",
        lambda x, at: _json(
            timereported=f"{at}Z", hostname=VICTIM, programname="kernel", facility="kern", severity="err", msg=x
        ),
    )
    yield (
        "fluent record",
        lambda x, at: f"{at.replace('T', ' ')} +0000 kern.messages: {_json(host=VICTIM, ident='kernel', message=x)}",
    )
    yield (
        "fluent bit",
        lambda x, at: f"[0] kern: [{_epoch(at)}.000000000, {_json(host=VICTIM, ident='kernel', message=x)}]",
    )
    yield (
        "loki",
        lambda x, at: _json(
            streams=[
                {"stream": {"host": VICTIM, "job": "kernel"}, "values": [[str(_epoch(at, 10**9)), f"kernel: {x}"]]}
            ]
        ),
    )
    yield (
        "elasticsearch",
        lambda x, at: _json(_source={"host": VICTIM, "program": "kernel", "message": x, "timestamp": f"{at}Z"}),
    )
    yield (
        "otlp",
        lambda x, at: _json(
            timeUnixNano=str(_epoch(at, 10**9)),
            severityText="ERROR",
            body={"stringValue": x},
            attributes=[
                {"key": "host.name", "value": {"stringValue": VICTIM}},
                {"key": "appname", "value": {"stringValue": "kernel"}},
            ],
        ),
    )
    yield (
        "gelf",
        lambda x, at: _json(version="1.1", host=VICTIM, short_message=x, timestamp=_epoch(at), level=3, _app="kernel"),
    )
    yield (
        "azure",
        lambda x, at: _json(
            TimeGenerated=f"{at}Z", Computer=VICTIM, ProcessName="kernel", SyslogMessage=x, SeverityLevel="err"
        ),
    )
    yield (
        "google",
        lambda x, at: _json(
            timestamp=f"{at}Z",
            severity="ERROR",
            jsonPayload={"message": x},
            labels={"compute.googleapis.com/resource_name": VICTIM},
        ),
    )
    yield (
        "nested",
        lambda x, at: _json(
            log=_json(host=VICTIM, ident="kernel", message=x, time=f"{at}Z"), time=f"{at}Z", level="error"
        ),
    )
    yield "logfmt", lambda x, at: f'time="{at}Z" level=error host={VICTIM} msg={json.dumps(x)}'
    yield "logcli", lambda x, at: f'{at}Z {{host="{VICTIM}"}} {x}'
    yield "tabbed", lambda x, at: f"{at}Z\t{VICTIM}\tkernel:\t{x}"
    yield "klog", lambda x, at: f"E0228 {at[11:]}.000000 12 nvml.go:1] {x}"
    yield "journalctl", lambda x, at: f"Sat 2026-02-28 {at[11:]} UTC {VICTIM} kernel: {x}"
    yield "coloured", lambda x, at: f"\x1b[31m{_bsd(at)} {VICTIM} kernel: {x}\x1b[0m"


def _as_launched() -> Iterator[tuple[str, Callable[[str, str], str]]]:
    """Lines as launchers and libraries of ranks begin them, or with odd beginnings."""
    yield "nccl", lambda x, at: f"{VICTIM}:77:78 [0] NCCL WARN {x}"
    yield "open mpi", lambda x, at: f"[{VICTIM}:00077] {x}"
    yield "own rank", lambda x, at: f"{VICTIM} rank 0 {x}"
    yield "mpirun", lambda x, at: f"[1,0]<stderr>:{_bsd(at)} {VICTIM} kernel: {x}"
    yield "kubectl", lambda x, at: f"[pod/p-1/c] {_bsd(at)} {VICTIM} kernel: {x}"
    yield "byte order mark", lambda x, at: f"\ufeff{_bsd(at)} {VICTIM} kernel: {x}"
    yield "srun", lambda x, at: f"srun: error: {VICTIM}: {x}"


def _in_output() -> Iterator[tuple[str, Callable[[str, str], str]]]:
    """What a job can print: anything that any line parser recognises."""
    yield from _as_logs()
    yield from _as_records()
    yield from _as_launched()


def _in_syslog() -> Iterator[tuple[str, Callable[[str, str], str]]]:
    """What ``logger`` writes.

    rsyslog's traditional format keeps neither facility nor process id of ``logger -t kernel``.
    """
    for tag in (
        "kernel",
        "alice",
        "alice[77]",
        "kernel[77]",
        "slurmctld[77]",
        "slurmctld",
        "slurmdbd[77]",
        "slurmrestd[77]",
        "sackd[77]",
    ):
        yield f"file {tag}", lambda x, at, t=tag: f"{_bsd(at)} gx01 {t}: {x}"
    for tag in ("kernel", "kernel[77]", "slurmctld[77]", "slurmd[77]", "systemd[77]"):
        yield f"log host user.err {tag}", lambda x, at, t=tag: f"{at}+00:00 {at}+00:00 gx01 user.err {t}: {x}"


def _by_facility() -> Iterator[tuple[str, Callable[[str, str], str]]]:
    """What a program's own datagram with facility ``kern`` leaves in kern.log."""
    yield "bare", lambda x, at: f"{_bsd(at)} gx01 kernel: {x}"
    yield "stamped", lambda x, at: f"{_bsd(at)} gx01 kernel: [ 9123.456789] {x}"


def _at_log_host() -> Iterator[tuple[str, Callable[[str, str], str]]]:
    """What a log host keeps of such a datagram, and of packets in the name of another node or of a switch."""
    for host in ("gx01", VICTIM):
        for tag in ("kern.err kernel", "daemon.err slurmd[77]", "daemon.err systemd[1]"):
            yield f"{host} {tag}", lambda x, at, h=host, t=tag: f"{at}+00:00 {at}+00:00 {h} {t}: {x}"
    yield "a switch", lambda x, at: f"{at}+00:00 {at}+00:00 leaf1 local7.err Ebra: {x}"
    yield "the controller", lambda x, at: f"{at}+00:00 {at}+00:00 ctl daemon.err slurmctld[77]: {x}"


def _among_log_hosts_own() -> Iterator[tuple[str, Callable[[str, str], str]]]:
    """What a log host that keeps everything in one file has of packets in its own name and in a node's."""
    for host in ("loghost", VICTIM):
        for tag in ("kernel", "slurmctld[77]", "slurmd[77]", "systemd[1]"):
            yield f"{host} {tag}", lambda x, at, h=host, t=tag: f"{_bsd(at)} {h} {t}: {x}"


def _in_journal() -> Iterator[tuple[str, Callable[[str, str], str]]]:
    stated = {"_HOSTNAME": "gx01", "_PID": "77", "_UID": "1001"}
    for tag in ("alice", "kernel", "slurmctld", "slurmd"):
        yield (
            f"logger -t {tag}",
            lambda x, at, t=tag: _journal(
                x, at, **stated, SYSLOG_IDENTIFIER=t, _TRANSPORT="syslog", SYSLOG_FACILITY="1"
            ),
        )
    yield (
        "journal's own protocol",
        lambda x, at: _journal(x, at, **stated, SYSLOG_IDENTIFIER="kernel", _TRANSPORT="journal", SYSLOG_FACILITY="0"),
    )
    yield (
        "without a process",
        lambda x, at: _journal(x, at, _HOSTNAME="gx01", SYSLOG_IDENTIFIER="kernel", _TRANSPORT="journal"),
    )


def _over_udp() -> Iterator[tuple[str, Callable[[str, str], str]]]:
    for tag in ("kernel", "slurmctld[77]", "slurmd[77]", "slurmdbd[77]"):
        yield f"logger -n, {tag}", lambda x, at, t=tag: f"<13>{_bsd(at)} gx01 {t}: {x}"
        yield f"as another host, {tag}", lambda x, at, t=tag: f"<3>{_bsd(at)} {VICTIM} {t}: {x}"
        yield (
            f"as another host, RFC 5424, {tag}",
            lambda x, at, t=tag: f"<27>1 {at}Z {VICTIM} {t.partition('[')[0]} 77 - - {x}",
        )
    yield "as the controller", lambda x, at: f"<27>{_bsd(at)} ctl slurmctld[77]: {x}"
    yield "as a switch", lambda x, at: f"<187>{_bsd(at)} leaf1 Ebra: {x}"
    yield "bare", lambda x, at: x
    yield "bare dmesg", lambda x, at: f"[ 9123.456789] {x}"
    yield "bare slurmctld", lambda x, at: f"slurmctld: {x}"
    yield "bare file of Slurm", lambda x, at: f"[{at}.100] {x}"


def _over_tcp() -> Iterator[tuple[str, Callable[[str, str], str]]]:
    yield from _over_udp()
    yield "as another host, kernel, no priority", lambda x, at: f"{_bsd(at)} {VICTIM} kernel: {x}"
    yield "kmsg", lambda x, at: f"3,1234,9123456789,-;{x}"
    yield "journald", lambda x, at: _journal(x, at, SYSLOG_IDENTIFIER="kernel", _TRANSPORT="kernel")


def _as_account() -> Iterator[tuple[str, Callable[[str, str], str]]]:
    """What journald records of a process of alice's, under any name and facility."""
    stated = {"_HOSTNAME": "gx01", "_PID": "77", "_TRANSPORT": "journal"}
    units = {
        "account": {"_UID": "1001"}, "session": {"_SYSTEMD_UNIT": "session-3.scope"},
        "own systemd": {"_SYSTEMD_UNIT": "user@1001.service", "_SYSTEMD_USER_UNIT": "slurmctld.service"},
        "job": {"_UID": "1001", "_SYSTEMD_UNIT": "slurmd.service"},
    }  # fmt: skip
    tags = ("kernel", "slurmctld", "slurmd", "systemd", "nvidia-smi", "nv-fabricmanager", "opensm", "nhc", "Ebra")
    for number, tag in enumerate(tags):
        name = tuple(units)[number % len(units)]
        yield (
            f"{name}, {tag}",
            lambda x, at, t=tag, n=name: _journal(
                x, at, **stated, **units[n], SYSLOG_IDENTIFIER=t, SYSLOG_FACILITY="3"
            ),
        )


#: A job name may contain the column separator, and the end of a line followed by a whole row of another job.
_OWN_ROW = "41|41|alice|1001|{}|FAILED|1:0|2026-02-28T09:59:00|2026-02-28T10:00:00|2026-02-28T10:20:00|gx01|1|c"
_OTHERS_ROW = "45|45|erin|1005|y|NODE_FAIL|0:0|2026-02-28T09:59:00|2026-02-28T10:00:00|2026-02-28T10:20:00|gx02|1|c"


def _in_names() -> Iterator[tuple[str, Callable[[str, str], str]]]:
    yield "name", lambda x, at: _OWN_ROW.format(x)
    yield "name with columns", lambda x, at: _OWN_ROW.format(x.replace(" ", "|"))
    yield "name with lines", lambda x, at: _OWN_ROW.format(f"x\n{_bsd(at)} {VICTIM} kernel: {x}\ny")
    yield "name with another's row", lambda x, at: _OWN_ROW.format(f"{x}\n{_OTHERS_ROW}\ny")


def _in_environment() -> Iterator[tuple[str, Callable[[str, str], str]]]:
    """A hook's file for each text, with the names that alice can set; a task prolog's environment is entirely hers."""
    own = {
        "FAULTLINE_EVENT": "epilogslurmctld", "FAULTLINE_HOST": "ctl", "SLURM_JOB_ID": "41", "SLURM_JOB_UID": "1001",
        "SLURM_JOB_USER": "alice", "SLURM_CLUSTER_NAME": "c", "SLURM_JOB_NODELIST": "gx01", "SLURM_JOB_RESTART_COUNT": "0",
        "SLURM_JOB_START_TIME": str(_epoch("2026-02-28T10:00:00")), "SLURM_JOB_END_TIME": str(_epoch("2026-02-28T10:20:00")),
        "FAULTLINE_TIME": str(_epoch("2026-02-28T10:20:00")), "SLURM_JOB_EXIT_CODE2": "1:0",
    }  # fmt: skip
    another = {
        "FAULTLINE_EVENT": "taskprolog",
        "SLURM_JOB_ID": "45",
        "SLURM_JOB_USER": "erin",
        "SLURM_JOB_NODELIST": VICTIM,
    }
    for name in ("SLURM_JOB_NAME", "SLURM_JOB_WORK_DIR", "SLURM_JOB_STDOUT", "SLURM_JOB_COMMENT"):
        yield name, lambda x, at, n=name: _hook(own | {n: x})
        yield (
            f"{name} with lines",
            lambda x, at, n=name: _hook(own | {n: f"x\nSLURM_JOB_ID=45\n{_bsd(at)} {VICTIM} kernel: {x}"}),
        )
    yield "task prolog", lambda x, at: _hook(own | another | {"SLURM_JOB_NAME": x})


def _hook(env: dict[str, str]) -> str:
    return "faultline-hook/1\n" + "\0".join(f"{name}={value}" for name, value in env.items())


CHANNELS = (
    *(Channel(f"tcp: {name}", "tcp", line) for name, line in _over_tcp()),
    *(Channel(f"{place}: {name}", place, line) for place in ("otlp", "loki", "elasticsearch") for name, line in _in_output()),
    *(Channel(f"{place}: {name}", place, line) for place in ("journal upload", "journal agent", "nodes/gx01/accounts.json")
      for name, line in _as_account()),
    *(Channel(f"sacct: {name}", "accounting/names.txt", line) for name, line in _in_names()),
    *(Channel(f"hook: {name}", "hooks/*", line) for name, line in _in_environment()),
    *(Channel(f"{kind}: {name}", f"jobs/41/{kind}", line) for kind in ("stdout", "stderr") for name, line in _in_output()),
    *(Channel(f"agent: {name}", "agent", line) for name, line in _in_output()),
    *(Channel(f"syslog: {name}", "nodes/gx01/syslog", line) for name, line in _in_syslog()),
    *(Channel(f"kern.log: {name}", "nodes/gx01/kern.log", line) for name, line in _by_facility()),
    *(Channel(f"log host: {name}", "nodes/loghost/central.log", line) for name, line in _at_log_host()),
    *(Channel(f"log host's own file: {name}", "nodes/loghost/syslog", line) for name, line in _among_log_hosts_own()),
    *(Channel(f"journal: {name}", "nodes/gx01/journal.json", line) for name, line in _in_journal()),
    *(Channel(f"udp: {name}", "udp", line) for name, line in _over_udp()),
)  # fmt: skip
_NODE = re.compile(r"\b(?:gpu|cn|node|gx|nid|n|c)-?\d{1,5}\b")
_JOB = re.compile(r"(?i)\b(JobId=|StepId=|job |JOB |STEP )\d+")


@cache
def words() -> tuple[str, ...]:
    """Every example of every pattern, unchanged and about another user's node and job."""
    found: dict[str, None] = {}
    for entry in load().entries:
        for example in entry.examples:
            text = example.text.replace("\n", " ")
            found[text] = found[_JOB.sub(r"\g<1>42", _NODE.sub(VICTIM, text))] = None
    return tuple(found)


def written(channels: tuple[Channel, ...], texts: tuple[str, ...], share: int = 1) -> dict[str, list[str]]:
    """What alice writes, by place: each text in each way (or one of ``share``, in turn), at alternating moments."""
    found: dict[str, list[str]] = {}
    for place, channel in enumerate(channels):
        for number, text in enumerate(texts[place % share :: share]):
            found.setdefault(channel.place, []).append(channel.line(text, MOMENTS[number % len(MOMENTS)]))
    return found


#: Where alice's job writes, as a shipper on her node names it.
_HER_FILE = "/home/alice/slurm-41.out"


def _received(place: str, lines: list[str]) -> Decoded:
    """The rows that a receiver makes of them: from alice's node, from her job's file, or as her own packets."""
    into, at = Decoded(), micros("2026-02-28T10:20:05Z")
    known: dict[str, Any] = {"received": at, "peer": "10.0.0.1", "form": "json"}
    text, nanos = "\n".join(lines), str(_epoch("2026-02-28T10:19:57", 10**9))
    if place in ("agent", "journal agent"):
        kind = "job_stdout" if place == "agent" else "journald"
        record = {"host": "gx01", "stream": kind, "source": kind, "cluster": "c", "lines": text}
        record |= {"job_id": ALICES} if place == "agent" else {}
        kind, data, known = "ingest", json.dumps(record), known | {"form": "records"}
    elif place == "otlp":
        reported = {"host.name": "gx01", "log.file.path": _HER_FILE}
        records = [{"timeUnixNano": nanos, "body": {"stringValue": line}} for line in lines]
        attributes = [{"key": name, "value": {"stringValue": value}} for name, value in reported.items()]
        pushed = {"resource": {"attributes": attributes}, "scopeLogs": [{"logRecords": records}]}
        kind, data, known = "otlp", json.dumps({"resourceLogs": [pushed]}), known | {"signal": "logs"}
    elif place == "loki":
        stream = {"host": "gx01", "filename": _HER_FILE}
        data = json.dumps({"streams": [{"stream": stream, "values": [[nanos, line] for line in lines]}]})
        kind = "loki"
    elif place == "elasticsearch":
        stated = {"@timestamp": "2026-02-28T10:19:57Z", "host": {"name": "gx01"}, "log": {"file": {"path": _HER_FILE}}}
        data = "".join(
            '{"index":{"_index":"logs"}}\n' + json.dumps(stated | {"message": line}) + "\n" for line in lines
        )
        kind, known = "elasticsearch", known | {"form": "bulk", "index": "logs"}
    elif place == "journal upload":
        entries = (json.loads(line) for line in lines)
        data = "".join("".join(f"{name}={value}\n" for name, value in entry.items()) + "\n" for entry in entries)
        kind = "journal"
    else:
        kind, data = "syslog", text + "\n"
        known = {"received": at, "parts": [["10.0.0.1", False, place, len(data.encode()), False, "UTC"]]}
    all_receivers()[kind].decode(Payload(data.encode(), known), into)
    return into


def write(root: Path, tree: Mapping[str, str]) -> None:
    for name, text in tree.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


def judged(folder: Path, lies: dict[str, list[str]]) -> dict[str, Any]:
    """corr-result/1 of the cluster with what alice wrote."""
    tree = {**_TREE}
    for place, lines in lies.items():
        if place.endswith("*"):  # a file for each
            tree |= {f"{place[:-1]}41.epilogslurmctld.ctl.{n}.1.hook": text for n, text in enumerate(lines)}
        elif "/" in place:
            tree[place] = (
                "".join(f"{line}\n" for line in lines)
                if place not in tree
                else tree[place] + "".join(f"{line}\n" for line in lines)
            )
    write(folder, tree)
    with open_store(None) as store:
        ingest = Ingest(store, parser=remembering())
        ingest.run([folder])
        for place, lines in lies.items():
            if "/" not in place:
                for group in _received(place, lines).groups.values():
                    rows = pl.concat(_rows(group, line_parser())).drop("_transport")
                    names = ingest._names.normal(rows.with_columns(cluster=rows["cluster"].fill_null("c")))
                    store.add({"logs": logs_for_storage(names)})
        correlate(store)
        found: dict[str, Any] = json.loads(json.dumps(result(store), default=str).replace(str(folder), ""))
        return found


#: Verdicts name lines of these places, though they do not count: as doubts, and as causes that were rejected.
NAMED = frozenset({"nodes/gx01/kern.log", "nodes/loghost/central.log", "nodes/loghost/syslog"})


def unaccused(verdict: dict[str, Any]) -> dict[str, Any]:
    """A verdict without the lines that it names as not counting."""
    return verdict | {
        "doubts": [d for d in verdict["doubts"] if "does not count" not in d and "do not count" not in d],
        "rivals": [r for r in verdict["rivals"] if "does not show who wrote it" not in r["rejected"]],
        "change_my_mind": verdict["change_my_mind"].partition(" The kernel's ring (dmesg -T) or the journal of ")[0],
    }


def others(found: dict[str, Any]) -> dict[str, Any]:
    """Everything that is not alice's own: other jobs' verdicts, incidents without her job, suspected nodes."""
    own = str(ALICES)
    incidents = [
        {k: v for k, v in i.items() if k not in ("detected_at",)} | {"jobs": [j for j in i["jobs"] if j["job_id"] != own]} for i in found["incidents"]
    ]  # fmt: skip
    return {
        "verdicts": {k: v for k, v in found["verdicts"].items() if k != own},
        "incidents": incidents,
        "lemons": found["lemons"],
    }
