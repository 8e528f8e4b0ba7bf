"""Nodes: where incidents gather, and which nodes were taken out of service, for how long and why."""

from __future__ import annotations

from correlator.incidents.lemons import FACT, read
from queries.reports.model import Column, Section
from queries.reports.reader import INCIDENT_END, Reader, within

#: Sources stamp one change of state up to some seconds apart; closer stretches of one node are one.
SAME_EPISODE_S = 5

_NODES = f"""
WITH told AS (
  SELECT *, root_host AS host, true AS root FROM model.incidents WHERE root_host IS NOT NULL AND {within(INCIDENT_END)}
  UNION ALL
  SELECT * FROM (SELECT *, unnest(from_json(document->'$.hosts', '["VARCHAR"]')) AS host, false AS root
    FROM model.incidents WHERE {within(INCIDENT_END)}) WHERE host IS DISTINCT FROM root_host
)
SELECT cluster, host, count(*) FILTER (root) AS rooted, count(*) FILTER (root AND severity = 'impact') AS impact,
  count(*) FILTER (NOT root) AS touched,
  CAST(coalesce(sum(json_array_length(document, '$.jobs')) FILTER (root), 0) AS BIGINT) AS jobs,
  coalesce(sum(TRY_CAST(document->>'$.gpu_hours_lost' AS DOUBLE)) FILTER (root), 0) AS gpu_hours,
  coalesce(list_sort(list(DISTINCT root_event) FILTER (root)), []) AS causes, max({INCIDENT_END}) AS last_seen
FROM told GROUP BY ALL ORDER BY rooted DESC, impact DESC, jobs DESC, touched DESC, host, cluster
"""

#: What was seen of every node in time order, from Slurm's own tools and from slurmctld's lines; then stretches of
#: being out of service. Power saving is no outage, and "not responding" (*) alone is not yet one.
_UNAVAILABLE = f"""
WITH lines AS (
  SELECT cluster, unnest(coalesce(from_json(entities::JSON->'$.nodes', '["VARCHAR"]'), [host])) AS host, time, event, message
  FROM model.events WHERE event IN ('slurm.node_down', 'slurm.node_drain', 'slurm.node_up')
), seen AS (
  SELECT cluster, host, time, CASE
      WHEN lower(state) LIKE '%drain%' THEN 'drained' WHEN lower(state) LIKE '%power%' THEN NULL
      WHEN lower(state) LIKE '%down%' THEN 'down' WHEN lower(state) LIKE '%fail%' THEN 'failed'
      WHEN lower(state) LIKE '%maint%' THEN 'maintenance' END AS bad, reason, actor
  FROM model.node_states WHERE time IS NOT NULL AND host IS NOT NULL
  UNION ALL
  SELECT cluster, host, until, NULL, NULL, NULL FROM model.node_states WHERE until IS NOT NULL AND host IS NOT NULL
  UNION ALL
  SELECT cluster, host, time, CASE event WHEN 'slurm.node_down' THEN 'down' WHEN 'slurm.node_drain' THEN 'drained' END, NULL, NULL
  FROM lines WHERE event <> 'slurm.node_up' OR message LIKE '%returned to service%' OR message ILIKE '%state set to%'
), ordered AS (
  SELECT *, lag(bad) OVER track AS before, min(time) FILTER (bad IS NULL) OVER (track ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS good,
    max(time) OVER (PARTITION BY cluster, host) AS last
  FROM seen WINDOW track AS (PARTITION BY cluster, host ORDER BY time, bad NULLS LAST)
), stretches AS (
  SELECT cluster, host, time AS start, good AS "end", last FROM ordered WHERE bad IS NOT NULL AND before IS NULL
), joined AS (
  SELECT *, CASE WHEN epoch(start) - epoch(lag("end") OVER (PARTITION BY cluster, host ORDER BY start)) <= $same THEN 0 ELSE 1 END AS new
  FROM stretches
), numbered AS (
  SELECT *, sum(new) OVER (PARTITION BY cluster, host ORDER BY start) AS number FROM joined
), episodes AS (
  SELECT cluster, host, min(start) AS start, CASE WHEN bool_or("end" IS NULL) THEN NULL ELSE max("end") END AS "end", max(last) AS last
  FROM numbered GROUP BY cluster, host, number
), explained AS (
  SELECT e.*, arg_max(o.reason, length(o.reason)) AS reason, arg_max(o.actor, length(o.reason)) AS actor,
    coalesce(max(o.bad) FILTER (o.bad = 'drained'), max(o.bad)) AS state
  FROM episodes e JOIN ordered o ON o.cluster IS NOT DISTINCT FROM e.cluster AND o.host = e.host AND o.bad IS NOT NULL
    AND o.time >= e.start AND (e."end" IS NULL OR o.time <= e."end")
  GROUP BY e.cluster, e.host, e.start, e."end", e.last
)
SELECT cluster, host, state, reason, max(actor) AS actor, count(*) AS times,
  sum(epoch(coalesce("end", last)) - epoch(start)) AS out_s, count(*) FILTER ("end" IS NULL) > 0 AS still,
  min(start) AS first_seen, max(start) AS last_seen
FROM explained WHERE {within('coalesce("end", last)')} GROUP BY ALL ORDER BY out_s DESC, host, state, reason, cluster
"""


def nodes(reader: Reader) -> Section:
    """Nodes by incidents, with the lemons that the correlator named."""
    lemons = set(read(reader.store.fact(FACT)))
    rows = reader.rows(_NODES)
    for row in rows:
        row["lemon"] = (row["cluster"], row["host"]) in lemons or (None, row["host"]) in lemons
    columns = [
        Column("host", "Node", "name"), Column("rooted", "Incidents begun here", "count", bar=True), Column("impact", "With impact", "count"),
        Column("touched", "Others that touched it", "count"), Column("jobs", "Jobs hurt", "count"), Column("gpu_hours", "GPU-hours lost", "hours"),
        Column("causes", "Causes", "name"), Column("lemon", "Lemon", "flag"), Column("last_seen", "Last", "time"),
    ]  # fmt: skip
    named = ", ".join(sorted({reader.called(host, cluster) for cluster, host in lemons}))
    note = f"Lemons over all that is stored: {named}." if lemons else "No node is a lemon."
    return Section(
        "nodes", "Nodes with most incidents", "A lemon is a node at which three or more incidents with impact began in its own hardware or "
        "links. It is judged over everything stored, not only this period.",
        tables=(reader.table("", columns, rows, empty="No incident on any node."),), notes=(note,),
    )  # fmt: skip


def unavailable(reader: Reader) -> Section:
    """Nodes out of service, by reason."""
    columns = [
        Column("host", "Node", "name"), Column("state", "State", "name"), Column("reason", "Reason"), Column("actor", "Set by", "name"),
        Column("times", "Times", "count"), Column("out_s", "Out of service", "seconds", bar=True), Column("still", "Still so", "flag"),
        Column("first_seen", "First", "time"), Column("last_seen", "Last", "time"),
    ]  # fmt: skip
    rows = reader.rows(_UNAVAILABLE, same=SAME_EPISODE_S)
    return Section(
        "unavailable", "Nodes out of service", "Stretches of DOWN, DRAIN, FAIL and MAINT. Still so: no return was seen before the data "
        "end, and the time counts up to the last word about the node.",
        tables=(reader.table("", columns, rows, empty="No node was seen out of service."),),
    )  # fmt: skip
