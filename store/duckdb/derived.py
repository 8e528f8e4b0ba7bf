"""Derived tables of ``store.tables``, computed by DuckDB when they are read.

``STATES``: node states from Slurm's answers to polls, and for nodes that were never polled, from slurmctld's log. A
poll or an accounting record has more than the log (which has changes only), so a host with any such record uses only
those. A host that writes as slurmctld and does not run it sets no node DOWN: such lines are not rows of
``model.events`` (``correlator/gather/standing.py``). ``DRAINS``: periods out of service (``store/duckdb/drains.py``).
"""

from __future__ import annotations

from store.duckdb.drains import DRAINS, REASON_WITHIN

STATES = f"""(
WITH lines AS (
  SELECT time, cluster, event, message, json_extract_string(entities, '$.state') AS state,
         json_extract_string(entities, '$.reason') AS reason,
         coalesce(json_extract_string(entities, '$.actor'), 'slurmctld') AS actor,
         unnest(CASE json_type(entities, '$.nodes') WHEN 'ARRAY' THEN CAST(json_extract(entities, '$.nodes') AS VARCHAR[])
                ELSE [json_extract_string(entities, '$.nodes')] END) AS host
  FROM model.events WHERE layer = 'slurmctld' AND event IN ('slurm.node_down', 'slurm.node_drain', 'slurm.node_up',
                                                            'slurm.node_invalid', 'slurm.node_reason')
), changes AS (
  SELECT *, upper(coalesce(state, CASE
           WHEN event = 'slurm.node_down' THEN 'DOWN' WHEN event = 'slurm.node_drain' THEN 'DRAIN'
           WHEN event = 'slurm.node_invalid' THEN nullif(regexp_extract(message, 'state to (INVAL|DRAIN)', 1), '')
           WHEN contains(message, 'returned to service') THEN 'UP' END)) AS told,
         CASE WHEN contains(message, 'not responding') THEN 'Not responding' ELSE reason END AS why
  FROM lines WHERE event <> 'slurm.node_reason' AND host IS NOT NULL
), reasons AS (
  SELECT time, cluster, host, reason FROM lines WHERE event = 'slurm.node_reason'
), told AS (
  SELECT c.time, lead(c.time) OVER (PARTITION BY c.cluster, c.host ORDER BY c.time, c.told) AS until, c.cluster, c.host,
         c.told AS state, c.actor, 'slurmctld' AS source,
         coalesce(c.why, CASE WHEN c.time - r.time <= {REASON_WITHIN} THEN r.reason END) AS reason
  FROM changes c ASOF LEFT JOIN reasons r ON c.cluster IS NOT DISTINCT FROM r.cluster AND c.host = r.host AND c.time >= r.time
  WHERE c.told IS NOT NULL
)
SELECT time, until, cluster, host, state, reason, actor, source FROM model.node_states
UNION ALL
SELECT time, until, cluster, host, state, reason, actor, source FROM told
WHERE NOT EXISTS (FROM model.node_states s WHERE s.host = told.host AND s.cluster IS NOT DISTINCT FROM told.cluster)
)"""

#: By name in ``store.tables``.
DERIVED = {"states_of_nodes": STATES, "drains_of_nodes": DRAINS}
