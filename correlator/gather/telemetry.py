"""What is measured, not said: GPUs held back by heat, seconds per training step, when a host wrote its last line.

All of it is worked out in the store, so that only the few rows that matter reach Python.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from correlator.clocks.accounting_zones import NOTHING_PRINTED, Printed
from correlator.clocks.clocks import Offset, ahead
from correlator.model.moments import moment_of

if TYPE_CHECKING:
    from correlator.model.reader import Reads

#: NVML clock event reasons that mean heat: software thermal 0x20, hardware thermal 0x40 (nvml.h nvmlClocksEventReason*).
THERMAL_BITS = 0x20 | 0x40

#: Names that exporters give the bit mask of reasons: dcgm-exporter before and since 3.3, nvidia_gpu_exporter.
_REASON_METRICS = ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "nvidia_smi_clocks_throttle_reasons_active",
                   "nvidia_smi_clocks_event_reasons_active")  # fmt: skip

_THROTTLED = """
WITH samples AS (
  SELECT DISTINCT epoch(time) AS t, host, coalesce(json_extract_string(labels, '$.pci_bus_id'), device) AS gpu,
    (CAST(value AS BIGINT) & ?) <> 0 AS hot
  FROM raw.metrics WHERE metric IN (SELECT unnest(?)) AND cluster IS NOT DISTINCT FROM ? AND time IS NOT NULL AND host IS NOT NULL
    AND host IN (SELECT DISTINCT host FROM raw.metrics WHERE metric IN (SELECT unnest(?)) AND (CAST(value AS BIGINT) & ?) <> 0)
), steps AS (
  SELECT *, lag(t) OVER w AS before, lead(t) OVER w AS after, coalesce(lag(hot) OVER w, false) AS was
  FROM samples WINDOW w AS (PARTITION BY host, gpu ORDER BY t)
), numbered AS (
  SELECT *, sum(CASE WHEN hot AND NOT was THEN 1 ELSE 0 END) OVER (PARTITION BY host, gpu ORDER BY t) AS episode FROM steps
)
SELECT host, gpu, min(t) AS first, max(t) AS last, count(*) AS samples, arg_min(before, t) AS before, arg_max(after, t) AS after
FROM numbered WHERE hot GROUP BY host, gpu, episode ORDER BY host, gpu, first"""


@dataclass(frozen=True)
class Throttled:
    """A GPU that heat held back in every sample from ``first`` to ``last``; ``before`` and ``after`` are the samples next to them."""

    host: str
    gpu: str
    first: float
    last: float
    before: float | None
    after: float | None
    samples: int


def throttled(store: Reads, cluster: str | None) -> list[Throttled]:
    names = list(_REASON_METRICS)
    rows = store.rows(_THROTTLED, [THERMAL_BITS, names, cluster, names, THERMAL_BITS])
    return [
        Throttled(r["host"], r["gpu"] or "", r["first"], r["last"], r["before"], r["after"], r["samples"]) for r in rows
    ]


#: Gauges that hold the last Xid of a GPU (0: none since the driver was loaded).
_XID_METRICS = ("DCGM_FI_DEV_XID_ERRORS", "nvidia_smi_xid_errors", "nvml_xid_errors")

_XIDS = """
WITH samples AS (
  SELECT DISTINCT epoch(time) AS t, host, coalesce(json_extract_string(labels, '$.pci_bus_id'), device) AS gpu, CAST(value AS INTEGER) AS code
  FROM raw.metrics WHERE metric IN (SELECT unnest(?)) AND cluster IS NOT DISTINCT FROM ? AND time IS NOT NULL AND host IS NOT NULL
    AND host IN (SELECT DISTINCT host FROM raw.metrics WHERE metric IN (SELECT unnest(?)) AND value > 0)
), steps AS (
  SELECT *, lag(t) OVER w AS before, lag(code) OVER w AS was FROM samples WINDOW w AS (PARTITION BY host, gpu ORDER BY t)
)
SELECT host, gpu, code, before, t FROM steps WHERE code > 0 AND before IS NOT NULL AND code <> was ORDER BY ALL"""


@dataclass(frozen=True)
class XidSeen:
    """An Xid that telemetry saw appear on a GPU between two samples."""

    host: str
    gpu: str
    code: int
    before: float
    seen: float


def xids_seen(store: Reads, cluster: str | None) -> list[XidSeen]:
    names = list(_XID_METRICS)
    rows = store.rows(_XIDS, [names, cluster, names])
    return [XidSeen(r["host"], r["gpu"] or "", r["code"], r["before"], r["t"]) for r in rows]


#: How trainers print the time of a step, in seconds or milliseconds, or steps per second. RE2 syntax: it runs in the store.
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_STEP = r"(?:iter(?:ation)?[ _-]?time|step[ _-]?time|time[ _/]per[ _](?:step|iter(?:ation)?)|(?:wall|time|sec(?:onds)?)/(?:step|iter)|batch[ _]time)"
STEP_TIME = (
    (rf"(?i)(?:elapsed time per iteration|iter(?:ation)?[ _-]?time|step[ _-]?time)\s*\(ms\)\s*[:=]\s*{_NUMBER}", 1e-3, False),
    (rf"(?i)(?:iter(?:ation)?[ _-]?time|step[ _-]?time|time/step)\s*[:=]?\s*{_NUMBER}\s*ms\b", 1e-3, False),
    (rf"(?i){_STEP}\s*[:=]?\s*{_NUMBER}\s*(?:s\b|sec|$|[|,; ])", 1.0, False),
    (rf"(?i){_NUMBER}\s*s/(?:it|iter|step|batch)\b", 1.0, False),
    (rf"(?i){_NUMBER}\s*(?:it|iter|steps?|batch(?:es)?)/s(?:ec)?\b", 1.0, True),
)  # fmt: skip

_STEP_WORD = r"(?i)(?:iter|step|batch|it/s|s/it)"


#: Lines in which a job may tell of its pace.
_OUTPUT = """l.source IN ('job_stdout', 'job_stderr') AND l.job_id IS NOT NULL AND l.time IS NOT NULL
          AND coalesce(l.event, 'other') = 'other' AND l.cluster IS NOT DISTINCT FROM ?"""


def progress(store: Reads, cluster: str | None) -> dict[tuple[int, int], list[tuple[float, float]]]:
    """(job, restart count) -> [(epoch seconds, seconds per step)] from stamped lines of the run's output."""
    found: dict[tuple[int, int], list[tuple[float, float]]] = {}
    if not store.rows(f"SELECT 1 FROM raw.log_view l WHERE {_OUTPUT} LIMIT 1", [cluster]):
        return found  # asking for numbers costs ten times as much as seeing that there is nothing to ask
    parts = []
    for pattern, factor, inverse in STEP_TIME:
        number = (
            f"TRY_CAST(nullif(regexp_extract(message, '{pattern.replace(chr(39), chr(39) * 2)}', 1), '') AS DOUBLE)"
        )
        parts.append(f"({factor} / nullif({number}, 0))" if inverse else f"({number} * {factor})")
    seconds = f"coalesce({', '.join(parts)})"
    rows = store.rows(
        f"""SELECT l.job_id, coalesce(a.restarts, 0) AS restarts, epoch(l.time) AS t, min({seconds}) AS seconds
        FROM raw.log_view l LEFT JOIN (SELECT DISTINCT file, restarts FROM raw.artifacts) a ON a.file = l.file
        WHERE {_OUTPUT} AND regexp_matches(l.message, '{_STEP_WORD}')
        GROUP BY ALL HAVING seconds > 0 ORDER BY 1, 2, 3""",
        [cluster],
    )
    for row in rows:
        found.setdefault((row["job_id"], row["restarts"]), []).append((row["t"], row["seconds"]))
    return found


def _by_host(zoned: Iterable[Offset]) -> dict[str, list[Offset]]:
    found: dict[str, list[Offset]] = defaultdict(list)
    for offset in zoned:
        found[offset.host].append(offset)
    return found


#: What others write of a host, or a run on several hosts writes: none of it is the host's own word.
OF_OTHERS = ("slurmctld", "slurmdbd", "slurmrestd", "sacct", "opensm", "switch", "job_stdout", "job_stderr")


def speaking(store: Reads, cluster: str | None, zoned: Iterable[Offset] = ()) -> Callable[[str], Sequence[float]]:
    """``spoke(host)``: times of the lines that the host itself wrote, one per second at most, kept once asked for; those in
    another zone (``zoned``) where they belong.

    A switch, the controller or accounting that speak of it do not count."""
    known: dict[str, list[float]] = {}
    by_host = _by_host(zoned)

    def spoke(host: str) -> Sequence[float]:
        if host not in known:
            rows = store.rows(
                f"""SELECT DISTINCT floor(epoch(time)) AS t, time_quality IS NOT DISTINCT FROM 'inferred' AS inferred,
                coalesce(source, '') IN ('slurmd', 'slurmstepd') AS slurm
                FROM raw.all_logs WHERE host = ? AND cluster IS NOT DISTINCT FROM ? AND time IS NOT NULL
                AND coalesce(source, '') NOT IN {OF_OTHERS} ORDER BY t""",
                [host, cluster],
            )
            known[host] = sorted(
                {r["t"] - ahead(by_host.get(host, ()), r["t"], r["inferred"], r["slurm"]) for r in rows}
            )
        return known[host]

    return spoke


#: What Slurm answers about its nodes bears their names as well.
_ANSWERS = "^(sacct|scontrol|sinfo|squeue|poll)"


def last_spoke(store: Reads, cluster: str | None, hosts: Collection[str], since: float) -> dict[str, float]:
    """The stamp (epoch seconds) of the last line that each of these hosts wrote itself, of those that wrote any since then."""
    rows = store.rows(
        f"""SELECT host, epoch(max(time)) AS t FROM raw.all_logs WHERE host IN (SELECT unnest(?::VARCHAR[]))
        AND cluster IS NOT DISTINCT FROM ? AND time >= ? AND coalesce(source, '') NOT IN {OF_OTHERS}
        AND NOT regexp_matches(coalesce(source, ''), '{_ANSWERS}') GROUP BY host""",
        [sorted(hosts), cluster, moment_of(since)],
    )
    return {r["host"]: r["t"] for r in rows}


#: slurmd's inventory of its machine, written when it starts (slurm src/slurmd/slurmd/slurmd.c).
_UPTIME = r"\bCPUs=\d+ .*\bUptime=(\d+)"


def starting(
    store: Reads, cluster: str | None, zoned: Iterable[Offset] = ()
) -> Callable[[str], Sequence[tuple[float, float]]]:
    """``starts(host)``: (time, the machine's uptime in seconds) of each start of its slurmd that tells it; ``zoned`` as in ``speaking``."""
    known: dict[str, list[tuple[float, float]]] = {}
    by_host = _by_host(zoned)

    def starts(host: str) -> Sequence[tuple[float, float]]:
        if host not in known:
            rows = store.rows(
                f"""SELECT DISTINCT epoch(time) AS t, CAST(regexp_extract(raw, '{_UPTIME}', 1) AS DOUBLE) AS uptime,
                time_quality IS NOT DISTINCT FROM 'inferred' AS inferred FROM raw.all_logs
                WHERE host = ? AND cluster IS NOT DISTINCT FROM ? AND time IS NOT NULL AND source = 'slurmd' AND raw LIKE '%Uptime=%'
                AND regexp_matches(raw, '{_UPTIME}') ORDER BY ALL""",
                [host, cluster],
            )
            off = by_host.get(host, ())
            known[host] = sorted({(r["t"] - ahead(off, r["t"], r["inferred"], True), r["uptime"]) for r in rows})
        return known[host]

    return starts


def bonds(store: Reads, cluster: str | None) -> Callable[[str], Sequence[tuple[float, str, str]]]:
    """``legs(host)``: (time, bond, interface) of the lines in which the bonding driver names a leg; a boot days ago tells most."""
    known: dict[str, list[tuple[float, str, str]]] = {}

    def legs(host: str) -> Sequence[tuple[float, str, str]]:
        if host not in known:
            rows = store.rows(
                """SELECT epoch(min(time)) AS t, json_extract_string(entities, '$.bond') AS bond, json_extract_string(entities, '$.port') AS port
                FROM raw.all_logs WHERE host = ? AND cluster IS NOT DISTINCT FROM ? AND time IS NOT NULL AND event LIKE 'nic.%' AND entities LIKE '%"bond"%'
                GROUP BY ALL HAVING bond IS NOT NULL AND port IS NOT NULL ORDER BY ALL""",
                [host, cluster],
            )
            known[host] = [(r["t"], r["bond"], r["port"]) for r in rows]
        return known[host]

    return legs


#: Answers of Slurm with a node's BootTime, which slurmd reckons from its uptime in whole seconds.
_BOOTS_TOLD = ("scontrol_node", "slurmrestd")

#: BootTimes of one boot agree within this, whatever NTP did to the clock meanwhile; more apart is another boot.
SAME_BOOT_S = 60.0


def booted(store: Reads, cluster: str | None) -> list[tuple[float, str]]:
    """(BootTime, host) of each boot but the first that Slurm told of a host: the machine was up before, as another one."""
    # Of a stretch of time its own boots only, beside all earlier ones: the quoted name is that of the whole table (recent.py).
    rows = store.rows(
        f"""SELECT DISTINCT epoch(boot_time) AS t, host FROM raw.boots b WHERE cluster IS NOT DISTINCT FROM ?
        AND list_contains(?::VARCHAR[], source) AND host IS NOT NULL AND EXISTS (SELECT 1 FROM raw."boots" o WHERE o.host = b.host
        AND o.cluster IS NOT DISTINCT FROM b.cluster AND o.boot_time < b.boot_time - INTERVAL {SAME_BOOT_S:.0f} SECOND
        AND list_contains(?::VARCHAR[], o.source)) ORDER BY host, t""",
        [cluster, list(_BOOTS_TOLD), list(_BOOTS_TOLD)],
    )
    found: list[tuple[float, str]] = []
    for row in rows:
        if not found or found[-1][1] != row["host"] or row["t"] - found[-1][0] > SAME_BOOT_S:
            found.append((row["t"], row["host"]))
    return found


#: Where the kernel or the system of a host speaks.
KERNEL_SOURCES = ("kernel", "syslog", "journal", "dmesg")


def voices(store: Reads, cluster: str | None) -> frozenset[str]:
    """Hosts of which at least one line of the kernel or the system was collected."""
    rows = store.rows(
        f"""SELECT DISTINCT host FROM raw.all_logs WHERE cluster IS NOT DISTINCT FROM ? AND host IS NOT NULL
        AND source IN {KERNEL_SOURCES}""",
        [cluster],
    )
    return frozenset(r["host"] for r in rows)


def begun(
    store: Reads, cluster: str | None, known: Printed = NOTHING_PRINTED
) -> Callable[[Collection[int]], dict[int, float]]:
    """``begun(jobs)``: when accounting says that jobs began (epoch seconds), of those that began once, as slurmctld's log would
    show it. ``known``: zones of what was printed."""

    def of(jobs: Collection[int]) -> dict[int, float]:
        start = known.as_logged.sql("start")
        rows = store.rows(
            f"""SELECT job_id, epoch(min({start})) AS t FROM raw.jobs WHERE cluster IS NOT DISTINCT FROM ? AND start IS NOT NULL
            AND job_id IN (SELECT unnest(?::BIGINT[])) GROUP BY job_id HAVING count(DISTINCT {start}) = 1""",
            [cluster, sorted(jobs)],
        )
        return {r["job_id"]: r["t"] for r in rows}

    return of
