"""A user who knows our catalogue writes to every place that users can write to, in any cluster whose logs are a tree.

mallory gets a job of her own on one node (``near``) of a capture or scenario, and would blame that node, another one
(``far``), a link, a switch, the controller or another user's job. ``played`` concludes with and without what she wrote.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from collector.decoding import _rows
from collector.ingest import Ingest
from collector.receivers import all_receivers
from collector.receivers.base import Decoded, Payload, micros
from correlator.engine import correlate, result
from parsers.hostlist import expand
from parsers.patterns import load
from store import open_store
from store.line_frames import logs_for_storage
from tests.correlator.attacked import _JOB, _NODE, VICTIM, _in_environment, _in_names, _in_output, _over_tcp, _over_udp
from tests.line_parser import line_parser

MALLORYS, HER_NAME, HER_UID = 99001, "mallory", 20666
#: Nobody's address.
HER_ADDRESS = "203.0.113.9"
#: What a job prints about itself blames hardware with no more than this (docs/security.md).
SURE_OF_OUTPUT = 0.5


@dataclass(frozen=True)
class Stage:
    """A tree with mallory's job. ``job``: another user's; ``moments``: when others' jobs end; ``iso``: do the nodes' syslogs
    have ISO timestamps?"""

    folder: Path
    near: str
    far: str
    cluster: str
    controller: str
    switch: str
    job: int
    begin: datetime
    end: datetime
    moments: tuple[str, ...]
    syslog: str
    iso: bool


@dataclass(frozen=True)
class Way:
    """A channel: ``place`` is a file of the tree or a receiver. ``often``: more texts go this way."""

    name: str
    place: str
    line: Callable[[str, str], str]
    often: bool = False


def staged(source: Path, folder: Path) -> Stage | None:
    """A copy of a tree, with mallory's job on one of its nodes; None if no run of it has a node with a syslog."""
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("truth.json"), dirs_exist_ok=True)
    accounting = next((p for p in sorted(folder.rglob("sacct.*")) if p.suffix in (".psv", ".txt")), None)
    hosts = next((folder / name for name in ("hosts", "nodes") if (folder / name).is_dir()), None)
    if accounting is None or hosts is None:
        return None
    header, *_ = accounting.read_text(encoding="utf-8").splitlines()
    with accounting.open(encoding="utf-8", newline="") as file:
        rows = [r for r in csv.DictReader(file, delimiter="|", quoting=csv.QUOTE_NONE) if _is_run(r)]
    with_log = {p.parent.name: p for p in sorted(hosts.glob("*/syslog"))}
    used = [n for r in rows for n in expand(r["NodeList"]) if n in with_log]
    if not used:
        return None
    near = max(sorted(set(used)), key=used.count)
    sound = [n for n in sorted(with_log) if n != near and n in _nodes(hosts)]
    times = [datetime.fromisoformat(r[k]) for r in rows for k in ("Start", "End")]
    begin, end = min(times), max(times)
    clusters = {r.get("Cluster") or "" for r in rows}
    hers = {
        "Cluster": max(clusters), "JobID": str(MALLORYS), "JobIDRaw": str(MALLORYS), "JobName": "lie", "User": HER_NAME,
        "UID": str(HER_UID), "State": "FAILED", "ExitCode": "1:0", "NodeList": near, "NNodes": "1", "AllocNodes": "1",
        "Submit": f"{begin - timedelta(seconds=2):%Y-%m-%dT%H:%M:%S}", "Start": f"{begin:%Y-%m-%dT%H:%M:%S}",
        "End": f"{end + timedelta(seconds=5):%Y-%m-%dT%H:%M:%S}", "Partition": rows[0].get("Partition") or "",
    }  # fmt: skip
    with accounting.open("a", encoding="utf-8") as file:
        file.write("|".join(hers.get(name, "") for name in header.split("|")) + "\n")
    ends = sorted({datetime.fromisoformat(r["End"]) for r in rows})
    ahead = _controller_ahead(source)
    moments = tuple(f"{max(begin, t - timedelta(seconds=2)) - ahead:%Y-%m-%dT%H:%M:%S}" for t in ends[-4:])
    lines = with_log[near].read_text(encoding="utf-8", errors="replace").splitlines()
    stage = Stage(
        folder, near, sound[0] if sound else near, max(clusters), _controller(folder, hosts), _switch(folder), int(rows[0]["JobIDRaw"].split(".")[0]),
        begin, end, moments, str(with_log[near].relative_to(folder)), not lines or lines[0][:4].isdigit(),
    )  # fmt: skip
    _extend(stage, {"jobs/99001/stdout": ["step 1"]})
    # Syslogs that are collected: otherwise her own line in one would be the first to show it.
    steps = int((end - begin).total_seconds() / 300) + 2
    for host, path in with_log.items():
        moments = [
            begin + timedelta(minutes=5 * n)
            for n in ((-1, *range(1, steps + 1)) if host == stage.far and steps > 4 else (-1, steps))
        ]
        lines = [
            _of_syslog(stage, host, "systemd[1]: Started Session 7 of user root.", f"{t:%Y-%m-%dT%H:%M:%S}")
            for t in moments
        ]
        _extend(stage, {str(path.relative_to(folder)): lines})
    return stage


def _controller_ahead(source: Path) -> timedelta:
    """By how much accounting's clock was ahead of that of the nodes, on which she writes: by accounting's, her job would be over."""
    truth = source / "truth.json"
    injections = json.loads(truth.read_text(encoding="utf-8")).get("injections", []) if truth.exists() else []
    return timedelta(
        seconds=max((i["seconds"] for i in injections if i["what"] == "clock_ahead" and i["host"] == "ctl"), default=0)
    )


def _is_run(row: Mapping[str, str]) -> bool:
    times = [row.get("Start") or "", row.get("End") or ""]
    named = (row.get("JobIDRaw") or "").isdigit() and bool(row.get("User"))
    return (
        named and all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", t) for t in times) and bool(row.get("NodeList"))
    )


def _nodes(hosts: Path) -> set[str]:
    """Hosts with a slurmd."""
    return {p.parent.name for p in hosts.glob("*/slurmd.log")}


def _controller(folder: Path, hosts: Path) -> str:
    found = [p.parent.name for p in hosts.glob("*/slurmctld.log")]
    for conf in sorted(folder.rglob("slurm.conf")):
        if named := re.search(r"(?m)^SlurmctldHost=([^(\s]+)", conf.read_text(encoding="utf-8")):
            return named[1]
    return found[0] if found else "ctl"


def _switch(folder: Path) -> str:
    for path in sorted((folder / "switches").glob("*")) or sorted(folder.glob("hosts/leaf*")):
        return path.name
    return "leaf01"


def _of_syslog(stage: Stage, host: str, words: str, at: str) -> str:
    stamp = f"{at}.123456+00:00" if stage.iso else f"{datetime.fromisoformat(at):%b %e %H:%M:%S}"
    return f"{stamp} {host} {words}"


def _extend(stage: Stage, files: Mapping[str, Sequence[str]]) -> None:
    for name, lines in files.items():
        path = stage.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write("".join(f"{line}\n" for line in lines).encode())


# ------------------------------------------------------------------------------------------------------- what she writes


@cache
def texts() -> tuple[tuple[str, str], ...]:
    """Every example of every pattern, with its event."""
    found = {e.text.replace("\n", " "): entry.event for entry in load().entries for e in entry.examples}
    return tuple(found.items())


#: Names that a daemon's lines have in a syslog without facilities. A file that keeps none cannot tell them from what
#: ``logger -t`` writes, and they count for their own host (docs/security.md).
DAEMONS = ("slurmd[77]", "slurmstepd[77]", "systemd[77]", "nvidia-persistenced[77]", "nv-fabricmanager[77]", "munged[77]", "dhclient[77]")  # fmt: skip
#: ``logger`` with any other tag.
TAGS = (HER_NAME, f"{HER_NAME}[77]", "kernel[77]", "slurmctld[77]", "slurmctld", "slurmdbd[77]", "slurmrestd[77]", "sackd[77]")  # fmt: skip


def ways(stage: Stage) -> tuple[Way, ...]:
    """All channels of a user of ``near``."""

    def syslog(tag: str) -> Callable[[str, str], str]:
        return lambda x, at: _of_syslog(stage, stage.near, f"{tag}: {x}", at)

    def uptime(at: str) -> str:
        return f"[{(datetime.fromisoformat(at) - stage.begin).total_seconds() + 86_400:.6f}]"

    def stamped(x: str, at: str) -> str:
        return _of_syslog(stage, stage.near, f"kernel: {uptime(at)} {x}", at)

    def by_loghost(host: str, tag: str) -> Callable[[str, str], str]:
        return lambda x, at: f"{at}.123956+00:00 {at}.123456+00:00 {host} {tag} {uptime(at)} {x}"

    def in_one_file(host: str, tag: str) -> Callable[[str, str], str]:
        return lambda x, at: _of_syslog(stage, host, f"{tag}: {x}", at)

    own = Path(stage.syslog)
    among_its_own = str(own.parents[1] / "loghost" / "syslog")
    by_facility, central = str(own.with_name("kern.log")), str(own.parents[1] / stage.controller / "central.log")

    return (
        *(Way(f"{kind}: {name}", f"jobs/{MALLORYS}/{kind}", line) for kind in ("stdout", "stderr") for name, line in _in_output()),
        *(Way(f"logger -t {tag}", stage.syslog, syslog(tag)) for tag in TAGS),
        Way("logger -t kernel", stage.syslog, syslog("kernel"), True),
        Way("/dev/log, with an uptime that fits", stage.syslog, stamped, True),
        # A datagram of her own with facility kern, to rsyslog's imuxsock or through journald.
        Way("/dev/log, facility kern", by_facility, syslog("kernel"), True),
        Way("/dev/log, facility kern, with an uptime that fits", by_facility, stamped, True),
        Way("/dev/log, facility kern, at the log host", central, by_loghost(stage.near, "kern.err kernel"), True),
        Way("a packet to the log host, as the kernel of another node", central, by_loghost(stage.far, "kern.err kernel"), True),
        Way("a packet to the log host, as slurmd of another node", central, by_loghost(stage.far, "daemon.err slurmd[77]:"), True),
        Way("a packet to the log host, as slurmctld", central, by_loghost(stage.controller, "daemon.err slurmctld[77]:"), True),
        Way("a packet to the log host, as a switch", central, by_loghost(stage.switch, "local7.err Ebra:"), True),
        # A log host that keeps these among its own lines.
        *(Way(f"a packet to the log host, as {host}'s {tag}", among_its_own, in_one_file(host, tag), True)
          for host in ("loghost", stage.far) for tag in ("kernel", "slurmctld[77]", "slurmd[77]", "systemd[1]")),
        *(Way(f"logger -t {tag}", stage.syslog, syslog(tag), True) for tag in DAEMONS),
        *(_by_network(stage) if stage.far != stage.near else ()),
        *_by_namespace(stage),
        *_within_daemons_files(stage),
        *(Way(f"sacct: {name}", "accounting/names.txt", line) for name, line in _in_names()),
        *(Way(f"hook: {name}", "hooks/*", line) for name, line in _in_environment()),
    )  # fmt: skip


def _by_network(stage: Stage) -> Iterator[Way]:
    for place, lines in (("udp", _over_udp()), ("tcp", _over_tcp())):
        for name, line in lines:
            yield Way(f"{place}: {name}", place, line, often=name.startswith("as "))


#: What the kernel writes about bonds and bridges, which a user can make in a namespace of her own under any name.
_OF_DEVICES = (
    "bond0: (slave {}): link status definitely down, disabling slave",
    "bond0: now running without any active interface!",
    "{}: (slave eth9): link status definitely down, disabling slave",
    "bonding: bond0: link status definitely down for interface {}, disabling it",
    "bond0: (slave {}): link status definitely up, 25000 Mbps full duplex",
    "sw0: port 4({}) entered disabled state",
    "{}: port 1(veth7) entered disabled state",
)


def _by_namespace(stage: Stage) -> Iterator[Way]:
    """The ring of a node of which it is collected."""
    ring = Path(stage.syslog).with_name("dmesg.log")
    if not (stage.folder / ring).exists():
        return
    names = ("eth0", "ib0", "hsn0", f"m-{stage.near}"[:15], f"f-{stage.near}"[:15])

    def line(x: str, at: str) -> str:
        form, device = _OF_DEVICES[len(x) % len(_OF_DEVICES)], names[len(x) // 3 % len(names)]
        return f"[{datetime.fromisoformat(at):%a %b %e %H:%M:%S %Y}] {form.format(device)}"

    yield Way("a namespace of her own", str(ring), line, True)


def _within_daemons_files(stage: Stage) -> Iterator[Way]:
    """Line ends within what Slurm's daemons repeat in their own files, in messages that are known (docs/security.md)."""
    own = Path(stage.syslog)
    of_slurmd, of_ctld = own.with_name("slurmd.log"), own.parents[1] / stage.controller / "slurmctld.log"
    refused = "_slurm_rpc_submit_batch_job: Invalid partition name specified"
    gone, step = ": No such file or directory", f"[{MALLORYS}.batch]"
    some: list[tuple[str, Path, Callable[[str, str], str]]] = [
        ("sbatch -D", of_slurmd, lambda x, at: f"[{at}.500] {step} error: run_script_as_user: couldn't change working dir to /x\n[{at}.498] {x}{gone}"),
        ("sbatch -o", of_slurmd, lambda x, at: f"[{at}.500] {step} error: Could not open stdout file /x\n[{at}.498] {x}{gone}"),
        ("TMPDIR", of_slurmd, lambda x, at: f"[{at}.500] {step} error: TMPDIR [/x\n[{at}.498] {x}\n[{at}.499] {x}] is not writeable"),
        ("sbatch -p", of_ctld, lambda x, at: f"[{at}.500] _get_job_parts: invalid partition specified: x\n[{at}.498] {x}\n[{at}.500] {refused}"),
        ("scontrol update, comment", of_ctld, lambda x, at: f"[{at}.500] _update_job: setting comment to x\n[{at}.498] {x} for JobId={MALLORYS}"),
    ]  # fmt: skip
    for name, path, line in some:
        if (stage.folder / path).exists():
            yield Way(f"{name}, with a line's end", str(path), line, True)


#: So many times as many texts go a way that is used often.
OFTEN = 16


def lies(stage: Stage, some: Sequence[Way], share: int, turn: int) -> dict[str, list[str]]:
    """What she writes, by place: each text goes one way in ``share``, and one in ``share // OFTEN`` of those used often;
    ``turn`` says which. Half of them are about near, half about far and another's job."""
    found: dict[str, list[str]] = {}
    for number, way in enumerate(some):
        every = max(1, share // OFTEN) if way.often else share
        moments = stage.moments
        for place, (text, _) in enumerate(texts()[(number + turn) % every :: every]):
            target = stage.near if place % 2 else stage.far
            about = _JOB.sub(rf"\g<1>{stage.job}", _NODE.sub(target, text))
            at = moments[place % len(moments)]
            found.setdefault(way.place, []).append(_moved(stage, way.line(about, at), at))
    return found


def _moved(stage: Stage, line: str, at: str) -> str:
    """A line of the small cluster of attacked.py, in this one."""
    day = datetime.fromisoformat(at)
    names = {VICTIM: stage.far, "gx01": stage.near, "leaf1": stage.switch, "Feb 28": f"{day:%b %e}", "alice": HER_NAME,
             "2026-02-28": f"{day:%Y-%m-%d}", "1001": str(HER_UID)}  # fmt: skip
    for old, new in names.items():
        line = line.replace(old, new)
    line = re.sub(r"\bctl\b", stage.controller, line)
    for old_epoch, moment in (("1772272800", stage.begin), ("1772274000", stage.end)):
        line = line.replace(old_epoch, str(int(moment.replace(tzinfo=UTC).timestamp())))
    line = re.sub(r"(?m)\|c$", f"|{stage.cluster}", line).replace("CLUSTER_NAME=c", f"CLUSTER_NAME={stage.cluster}")
    line = line.replace("SLURM_JOB_ID=41", f"SLURM_JOB_ID={MALLORYS}").replace("SLURM_JOB_ID=45", f"SLURM_JOB_ID={stage.job}")  # fmt: skip
    return re.sub(r"^41\|41\|", f"{MALLORYS}|{MALLORYS}|", line).replace("45|45|", f"{stage.job}|{stage.job}|")


def _received(stage: Stage, place: str, lines: Sequence[str]) -> Decoded:
    into, text = Decoded(), "\n".join(lines) + "\n"
    at = micros(f"{stage.end + timedelta(seconds=60):%Y-%m-%dT%H:%M:%S}Z")
    known = {"received": at, "parts": [[HER_ADDRESS, False, place, len(text.encode()), False, "UTC"]]}
    all_receivers()["syslog"].decode(Payload(text.encode(), known), into)
    return into


# ---------------------------------------------------------------------------------------------------------- conclusions


def concluded(stage: Stage, told: Mapping[str, list[str]]) -> tuple[dict[str, Any], int]:
    """corr-result/1 with these lies, read together with all that is true, and the number of lines stored."""
    with TemporaryDirectory() as copy, open_store(None) as store:
        with_lies = Stage(**{**stage.__dict__, "folder": Path(copy) / "t"})
        shutil.copytree(stage.folder, with_lies.folder)
        _write(with_lies, told)
        return _judged(with_lies, told, store)


def concluded_twice(stage: Stage, told: Mapping[str, list[str]]) -> list[tuple[dict[str, Any], int]]:
    """The same without these lies, and once they came to what was read before: only they are read the second time. They are
    in the stage's folder then."""
    with open_store(None) as store:
        without = _judged(stage, {}, store)
        _write(stage, told)
        return [without, _judged(stage, told, store)]


def _write(stage: Stage, told: Mapping[str, list[str]]) -> None:
    """Puts what she writes to files in its places."""
    for place, lines in told.items():
        if place.endswith("*"):
            for number, text in enumerate(lines):
                path = stage.folder / f"hooks/{MALLORYS}.epilogslurmctld.ctl.{number}.1.hook"
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
        elif place == "accounting/names.txt":
            _extend(stage, {place: [_HEADER, *lines]})
        elif "/" in place:
            _extend(stage, {place: lines})


def _judged(stage: Stage, told: Mapping[str, list[str]], store: Any) -> tuple[dict[str, Any], int]:
    """corr-result/1 of a store that has read the folder, and what she sent, and the number of lines stored."""
    ingest = Ingest(store, parser=line_parser())
    ingest.run([stage.folder])
    for place in ("udp", "tcp"):
        if told.get(place):
            for group in _received(stage, place, told[place]).groups.values():
                rows = pl.concat(_rows(group, line_parser())).drop("_transport")
                names = ingest._names.normal(
                    rows.with_columns(
                        cluster=rows["cluster"].fill_null(stage.cluster) if stage.cluster else rows["cluster"]
                    )
                )
                store.add({"logs": logs_for_storage(names)})
    correlate(store)
    found = json.loads(json.dumps(result(store), default=str).replace(str(stage.folder), ""))
    (count,) = store.rows("SELECT count(*) AS n FROM raw.log_view")
    return found, count["n"]


_HEADER = "JobID|JobIDRaw|User|UID|JobName|State|ExitCode|Submit|Start|End|NodeList|NNodes|Cluster"


def is_hers(key: str) -> bool:
    return re.split("[#@]", key)[0] == str(MALLORYS)


def said(verdict: Mapping[str, Any]) -> tuple[str, str | None, str | None, str | None, float]:
    """Category, root cause and confidence."""
    root = verdict.get("root_cause") or {}
    return verdict["category"], root.get("event"), root.get("host"), root.get("device"), round(verdict["confidence"], 4)


def roots(found: Mapping[str, Any]) -> set[tuple[str, str | None, str | None, str | None]]:
    return {
        (i["category"], i["root_cause"]["event"], i["root_cause"]["host"], i["root_cause"]["device"])
        for i in found["incidents"]
    }


def _doubt_lifted(was: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Is only the doubt gone that no log of a node was collected? A line in its name shows one (docs/security.md)."""
    unlogged = [doubt for doubt in was["doubts"] if doubt.startswith("No ") and "log of" in doubt]
    return said(was)[:4] == said(now)[:4] and bool(unlogged) and not set(unlogged) <= set(now["doubts"])


def harm(peace: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """What the lies changed for others, or gained their writer."""
    harmed = []
    before, after = peace["verdicts"], found["verdicts"]
    for key in sorted(before.keys() | after.keys()):
        was, now = (said(one[key]) if key in one else None for one in (before, after))
        if is_hers(key):
            if now is not None and was != now and now[0].startswith("infra.") and now[4] > SURE_OF_OUTPUT:
                harmed.append(f"her own: {was} -> {now}")
        elif was != now and not (was is not None and now is not None and _doubt_lifted(before[key], after[key])):
            harmed.append(f"{key}: {was} -> {now}")
    harmed += [f"a new incident: {root}" for root in sorted(roots(found) - roots(peace), key=str)]
    harmed += [f"an incident is gone: {root}" for root in sorted(roots(peace) - roots(found), key=str)]
    return harmed
