"""A store for ``benchmarks/ui.py``: a fleet with states, temperatures and cables, and one incident with many lanes and events.

DuckDB makes the rows itself. What the correlator would conclude is written as well: pages are measured, not conclusions.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from store.duckdb.store import DuckStore

DAY = datetime(2026, 2, 27, 12)
INCIDENT = "I-ui"
#: Nodes of a rack, and of a leaf switch.
RACK = 32
#: Polls of every node's state, minutes between them, and samples of each of its GPUs, seconds between them.
POLLS, POLL_M, SAMPLES, SAMPLE_S, GPUS = 24, 10, 5, 60, 8
#: How long the incident lasted, seconds.
LONG_S = 600

_HOSTS = f"SELECT range AS n, printf('r%03d-n%02d', range // {RACK}, range % {RACK}) AS host FROM range({{nodes}})"
_STATES = f"""INSERT INTO model.node_states (time, cluster, host, state, reason, actor, source)
SELECT $start::TIMESTAMP - to_minutes(p * {POLL_M}), 'bench', host, CASE hash(n, p // 6) % 100 WHEN 0 THEN 'DOWN*' WHEN 1 THEN 'IDLE+DRAIN'
  WHEN 2 THEN 'UNKNOWN' WHEN 3 THEN 'MIXED*' ELSE CASE WHEN hash(n) % 5 = 0 THEN 'IDLE' ELSE 'ALLOCATED' END END, NULL, 'slurm', 'poll'
FROM ({_HOSTS}), (SELECT range AS p FROM range({POLLS}))"""
_SAMPLES = f"""INSERT INTO raw.metrics (time, cluster, host, metric, value, device, labels)
SELECT $start::TIMESTAMP - to_seconds(s * {SAMPLE_S}), 'bench', host, 'DCGM_FI_DEV_GPU_TEMP', 30 + hash(n) % 45 + hash(n, g, s) % 14, g::VARCHAR, '{{{{}}}}'
FROM ({_HOSTS}), (SELECT range AS g FROM range({GPUS})), (SELECT range AS s FROM range({SAMPLES}))"""
_CABLES = f"""INSERT INTO raw.topology (cluster, switch, child, kind)
SELECT 'bench', printf('leaf%03d', n // {RACK}), host, 'node' FROM ({_HOSTS})"""
#: Two lanes of each host: its kernel and its slurmd.
_EVENTS = f"""INSERT INTO model.events (event_id, time, time_quality, resolution_us, received_time, cluster, host, source, unit, layer, event,
  severity, device, message, entities, count, file, line, authority)
SELECT 'U' || i, time, 'line', 1000, time, 'bench', host, source, source, source, 'other', CASE WHEN i % 50 = 0 THEN 'error' ELSE 'info' END,
  '', 'line ' || i || ' of the benchmark, as long as many lines of logs are', NULL, 1, '/var/log/' || source || '.log', i, 'local'
FROM (SELECT range AS i, $start::TIMESTAMP + to_microseconds((range * {LONG_S}e6 / {{events}})::BIGINT) AS time,
      printf('r%03d-n%02d', (range % {{hosts}}) // {RACK}, (range % {{hosts}}) % {RACK}) AS host,
      CASE WHEN (range // {{hosts}}) % 2 = 0 THEN 'kernel' ELSE 'slurmd' END AS source FROM range({{events}}))"""


def host(number: int) -> str:
    """The name of a node."""
    return f"r{number // RACK:03d}-n{number % RACK:02d}"


def fill(store: DuckStore, *, nodes: int, lanes: int, events: int) -> None:
    """Puts ``nodes`` nodes and an incident of ``lanes`` lanes with ``events`` events into the store."""
    start = {"start": DAY}
    with store.transaction() as connection:
        connection.execute(_STATES.format(nodes=nodes), {"start": DAY + timedelta(seconds=LONG_S)})
        connection.execute(_SAMPLES.format(nodes=nodes), {"start": DAY + timedelta(seconds=LONG_S)})
        connection.execute(_CABLES.format(nodes=nodes))
        connection.execute(_EVENTS.format(hosts=lanes // 2, events=events), start)
        row = {"incident_id": INCIDENT, "cluster": "bench", "start": DAY, "end": DAY + timedelta(seconds=LONG_S), "severity": "impact",
               "category": "infra.network", "root_event": "switch.failure", "root_host": "leaf000", "root_device": "",
               "document": json.dumps(_document(lanes // 2))}  # fmt: skip
        names = ", ".join(f'"{name}"' for name in row)
        connection.execute(
            f"INSERT INTO model.incidents ({names}) VALUES ({', '.join('?' * len(row))})", list(row.values())
        )


def _document(hosts: int) -> dict[str, object]:
    """A switch failed, and each host lost its link a moment later."""

    def at(seconds: float) -> str:
        return (DAY + timedelta(seconds=seconds)).isoformat() + "Z"

    events = [{"id": "root", "time": at(60), "host": "leaf000", "event": "switch.failure", "layer": "switch", "device": "leaf000", "role": "cause",
               "message": "power supply failed", "source": "leaf000/syslog", "line": 1}]  # fmt: skip
    events += [{"id": f"U{2 * n}", "time": at(61 + n / 10), "host": host(n), "event": "nic.link_down", "layer": "kernel", "device": "", "role": "effect",
                "message": "link down", "source": "kernel.log", "line": n} for n in range(hosts)]  # fmt: skip
    chain = [{"cause": "root", "effect": f"U{2 * n}", "edge": "E02", "effect_fact": "link.outage", "effect_host": host(n), "lag_s": 1 + n / 10}
             for n in range(hosts)]  # fmt: skip
    return {"id": INCIDENT, "title": f"leaf000 failed and took the links of {hosts} nodes", "events": events, "chain": chain,
            "hosts": [host(n) for n in range(hosts)], "jobs": [], "confidence": 0.9, "status": "final"}  # fmt: skip
