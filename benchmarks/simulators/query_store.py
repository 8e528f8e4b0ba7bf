"""Synthetic cluster logs in bulk, written straight into a store: the data of ``benchmarks/queries.py``.

A day of a 1,000-node cluster, in order of arrival, 2 % of the lines late by up to 5 s. DuckDB makes the rows itself, so
that ten million take about a minute. Planted, per million rows: 2,500 Xid lines, 37 GPUs that fell off the bus, 100
link downs followed by a slurmd error on the same host within 60 s, 200 lone link downs, 200 lone slurmd errors.
"""

from __future__ import annotations

from datetime import datetime

from store.duckdb.store import DuckStore

DAY = datetime(2026, 2, 27)
HOSTS = 1000

# weight, unit, source, facility, severity, event, text; up to three holes of one letter each:
# n number, x hex, i address, j job, u user, d device, s seconds
TEMPLATES: list[tuple[int, str, str, str, str, str, str]] = [
    (60, "sshd", "syslog", "auth", "info", "other", "Accepted publickey for {u} from {i} port {n} ssh2: ED25519"),
    (50, "sshd", "syslog", "auth", "info", "other", "pam_unix(sshd:session): session closed for user {u}"),
    (55, "systemd", "syslog", "daemon", "info", "other", "Started session-{n}.scope - Session {n} of User {u}."),
    (40, "systemd", "syslog", "daemon", "info", "other", "run-user-{n}.mount: Deactivated successfully."),
    (30, "systemd", "syslog", "daemon", "info", "other", "sysstat-collect.service: Consumed {s} CPU time."),
    (50, "CRON", "syslog", "cron", "info", "other", "({u}) CMD (/usr/local/sbin/node-health --quick --id {n} 2>&1)"),
    (90, "slurmd", "slurmd", "daemon", "info", "other", "launch task StepId={j}.0 request from UID:{n} GID:{n}"),
    (70, "slurmd", "slurmd", "daemon", "info", "other", "[{j}.batch] done with step, usage {s} s, cgroup job_{j} removed"),
    (60, "slurmd", "slurmd", "daemon", "debug", "other", "debug:  _rpc_terminate_job: uid = {n} JobId={j}"),
    (45, "slurmd", "slurmd", "daemon", "info", "other", "Could not find previous epilog record for JobId={j} in {s} s"),
    (80, "slurmctld", "slurmctld", "daemon", "info", "other", "sched: Allocate JobId={j} NodeList=gx{n} #CPUs=96 Partition=train"),
    (60, "slurmctld", "slurmctld", "daemon", "info", "other", "_job_complete: JobId={j} WEXITSTATUS 0"),
    (50, "slurmctld", "slurmctld", "daemon", "debug", "other", "backfill: completed testing {n} jobs, usec={n}"),
    (70, "kernel", "kernel", "kern", "info", "other", "perf: interrupt took too long ({n} > {n}), lowering sample rate"),
    (40, "kernel", "kernel", "kern", "info", "other", "audit: type=1400 apparmor=ALLOWED pid={n} comm=python{x}"),
    (35, "kernel", "kernel", "kern", "warning", "other", "TCP: request_sock_TCP: Possible SYN flooding on port {n}."),
    (30, "kernel", "kernel", "kern", "info", "other", "nvidia-uvm: Loaded the UVM driver, major device number {n} token {x}"),
    (60, "chronyd", "syslog", "daemon", "info", "other", "Selected source {i} offset {s} ms stratum 2"),
    (55, "nv-hostengine", "syslog", "daemon", "info", "other", "gpu {d} sample power={n} clocks={n} handle 0x{x}"),
    (75, "containerd", "syslog", "daemon", "info", "other", "shim {x}{x} started by namespace {u} pid {n}"),
    (65, "lnetctl", "syslog", "daemon", "info", "other", "Lustre: scratch-OST{n}: connection to {i}@o2ib restored id {x}"),
    (45, "munged", "syslog", "daemon", "notice", "other", "Processing credential for UID={n} cookie {x} realm cluster"),
    (40, "opensm", "opensm", "daemon", "info", "other", "osm_trap_rcv: Received Generic Notice type:{n} LID:{n} GUID:0x{x}"),
    (50, "python3", "job_stdout", "user", "info", "other", "step {n} loss {s} grad_norm {s} throughput ok"),
    (40, "python3", "job_stdout", "user", "info", "other", "saving checkpoint to /scratch/{u}/run-{j}/ckpt-{n}.pt"),
    (35, "bgpd", "switch", "daemon", "info", "other", "neighbor {i} Up, prefixes {n}, session token {x}"),
]  # fmt: skip
XID = (
    2,
    "kernel",
    "kernel",
    "kern",
    "error",
    "gpu.xid",
    "NVRM: Xid (PCI:0000:{d}:00): {c}, pid={n}, name=python, Ch {x}",
)
FALLEN = (0, "kernel", "kernel", "kern", "critical", "gpu.fallen_off_bus",
          "NVRM: GPU at PCI:0000:{d}:00: GPU-{x} has fallen off the bus.")  # fmt: skip
DOWN = (0, "kernel", "kernel", "kern", "warning", "nic.link_down", "mlx5_core 0000:{d}:00.0 enp{n}s0f0np0: Link down")
ERROR = (0, "slurmd", "slurmd", "daemon", "error", "slurm.comm_error",
         "error: slurm_send_node_msg: unable to contact slurm controller: Connect failure JobId={j}")  # fmt: skip


def _hole(letter: str, place: int) -> str:
    """SQL for one hole, different for every row and position."""
    h = f"(h{1 + (place - 1) % 3} // {1 if place < 4 else 100_003})"
    return {
        "n": f"({h} % 65521)::VARCHAR", "x": f"printf('%08x', {h} % 4294967296)", "j": f"(800000 + {h} % 20000)::VARCHAR",
        "i": f"'10.' || ({h} % 4) || '.' || ({h} % 250) || '.' || ({h} // 977 % 250)", "d": f"printf('%02x', 16 * ({h} % 8) + 3)",
        "u": f"['ada','bela','chen','dora','emil','fay','goran','hana','ivo','jun','kiran','lena'][1 + {h} % 12] || ({h} // 12 % 40)",
        "s": f"printf('%d.%03d', {h} % 90, {h} // 90 % 1000)", "c": f"[13, 31, 43, 48, 63, 79, 94, 119][1 + {h} % 8]::VARCHAR",
    }[letter]  # fmt: skip


def _text(template: str) -> str:
    """A template as an SQL concatenation."""
    parts, place = [], 0
    rest = template
    while "{" in rest:
        head, _, tail = rest.partition("{")
        place += 1
        parts += [f"'{head}'", _hole(tail[0], place)]
        rest = tail[2:]
    return " || ".join([*parts, f"'{rest}'"])


_ALL = [*TEMPLATES, XID, FALLEN, DOWN, ERROR]
_XID, _FALLEN, _DOWN, _ERROR = (len(TEMPLATES) + n for n in range(4))


def _case(value: int, kind: str = "") -> str:
    chosen = " ".join(
        f"WHEN {n} THEN " + (_text(str(t[value])) if kind else f"'{t[value]}'") for n, t in enumerate(_ALL)
    )
    return f"CASE kind {chosen} END"


def _chunk(first: int, rows: int, seconds: float) -> str:
    """One chunk of the day: ``rows`` rows from number ``first``, spread over ``seconds`` from ``$start``."""
    total = sum(t[0] for t in TEMPLATES)
    bounds, so_far = [], 0
    for number, template in enumerate(TEMPLATES):
        so_far += template[0]
        bounds.append(f"WHEN h0 % {total} < {so_far} THEN {number}")
    plants = f"""CASE WHEN h9 % 1000000 < 2500 THEN {_XID} WHEN h9 % 1000000 < 2537 THEN {_FALLEN}
        WHEN h9 % 1000000 < 2837 THEN {_DOWN} WHEN h9 % 1000000 < 3037 THEN {_ERROR} ELSE
        CASE {" ".join(bounds)} END END"""
    base = f"""SELECT i, h0, h1, h2, h3, {plants} AS kind, printf('gx%04d', (h0 // 7919) % {HOSTS}) AS host,
        i::DOUBLE / {rows} * {seconds} + CASE WHEN h1 % 50 = 0 THEN -(h2 % 5) ELSE 0 END AS moment
      FROM (SELECT range AS i, (hash(range + {first}, 1) >> 1)::BIGINT AS h0, (hash(range + {first}, 2) >> 1)::BIGINT AS h1,
            (hash(range + {first}, 3) >> 1)::BIGINT AS h2, (hash(range + {first}, 4) >> 1)::BIGINT AS h3, (hash(range + {first}, 5) >> 1)::BIGINT AS h9
            FROM range({rows}))"""
    # A third of the link downs is followed by slurmd's error, up to a minute later.
    chain = f"""SELECT i, h1 AS h0, h2 AS h1, h3 AS h2, h0 AS h3, {_ERROR} AS kind, host, moment + 5 + h2 % 50 AS moment
      FROM base WHERE kind = {_DOWN} AND h3 % 3 = 0"""
    return f"""WITH base AS ({base}), every AS (SELECT * FROM base UNION ALL {chain}),
      worded AS (SELECT *, {_case(1)} AS unit, {_case(2)} AS source, {_case(3)} AS facility, {_case(4)} AS severity,
        {_case(5)} AS event, {_case(6, "text")} AS message, $start::TIMESTAMP + to_microseconds((moment * 1e6)::BIGINT) AS time
        FROM every),
      headed AS (SELECT *, strftime(time, '%b %d %H:%M:%S') || ' ' || host || ' ' || unit || '[' || (h3 % 32768) || ']: ' AS head
        FROM worded)
    INSERT INTO raw.logs (time, time_quality, received_time, resolution_us, cluster, host, source, format, unit, pid,
      facility, severity, event, job_id, entities, raw, msg_start, file, line)
    SELECT time, 'line', time + INTERVAL 1 SECOND, 1000000, 'bench', host, source, 'rfc3164', unit, h3 % 32768, facility,
      severity, event, TRY_CAST(nullif(regexp_extract(message, 'JobId=([0-9]+)', 1), '') AS BIGINT),
      CASE kind WHEN {_XID} THEN json_object('xid', regexp_extract(message, '\\): ([0-9]+)', 1)::INT, 'pci', substr(message, 17, 7))
        WHEN {_DOWN} THEN json_object('pci', substr(message, 11, 12)) END::VARCHAR,
      head || message, length(head), '/var/log/bench.log', {first} + i
    FROM headed ORDER BY i"""


def fill(store: DuckStore, rows: int) -> None:
    """Puts ``rows`` lines of one day, and the events among them, into the store."""
    chunks = max(1, min(24, rows // 50_000))
    each, done = rows // chunks, 0
    for number in range(chunks):
        size = each if number < chunks - 1 else rows - done
        start = datetime.fromtimestamp(DAY.timestamp() + 86400 / chunks * number)
        with store.transaction() as connection:
            connection.execute(_chunk(done, size, 86400 / chunks), {"start": start})
        done += size
    with store.transaction() as connection:
        connection.execute("""INSERT INTO model.events (event_id, time, received_time, cluster, host, source, unit, event,
            severity, device, job_id, message, entities, count, file, line)
          SELECT 'E' || row_number() OVER (ORDER BY time, host, line), time, received_time, cluster, host, source, unit, event,
            severity, coalesce(json_extract_string(entities, '$.pci'), ''), job_id, substr(raw, msg_start + 1), entities, 1,
            file, line
          FROM raw.logs WHERE event <> 'other' ORDER BY time, host, line""")
