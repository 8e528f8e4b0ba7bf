"""``DRAINS``: the periods in which nodes were out of service, computed by DuckDB when they are read.

This is the only definition of "out of service": the table ``Drains``, the saved queries, the reports and the pages
read it. A node is out of service while Slurm has it DRAIN, DOWN, FAIL, INVAL, in maintenance, or restarts it. Power
saving is not an outage, and "not responding" (*) alone is not one yet.

Observations of a node are what Slurm's tools and accounting reported, and slurmctld's own lines. A period begins with the
first observation out of service and ends with the first one in service. Another state, or another reason, begins
another period, so those of one node never overlap.

Who did it is taken from who can know it: accounting and ``scontrol`` name the user that set the reason. slurmctld's
lines about nodes name nobody. ``slurmctld`` is then what slurmctld decided itself, and ``not logged by Slurm`` an update whose sender its
log does not name: a person's, a health check's, or slurmd's report that a job cannot be killed. With ``DebugFlags=AuditRPCs`` (since 23.11)
or ``SlurmctldDebug=debug2`` it logs who asks for an update just before, and such an update is ``uid N``, if nobody else asked for one that
was allowed within seconds. What a
reason says of its author (``[root@...]``) counts for nothing, since whoever writes the reason can write that as well.
"""

from __future__ import annotations

from parsers.node_states import POWER_FLAGS, pattern_of
from parsers.reasons import OWNERS
from store.questions.out_of_service import BY_ITSELF, UNNAMED

#: slurmctld logs the reason of a node's state change in a separate line, just before the one with the change.
REASON_WITHIN = "INTERVAL 2 SECOND"
#: Timestamps of one change differ by up to some seconds between sources; closer periods of one node are one.
SAME_PERIOD = "INTERVAL 5 SECOND"
#: The span in which ``times`` counts how often a node was taken out of service.
REPEATED_WITHIN = "INTERVAL 30 DAY"
#: The most observations that are listed as evidence of one period.
MOST_EVIDENCE = 20

#: In this order observations of one moment follow each other, however they were stored.
_TIES = "said, source, event_id, reason, actor"

#: By precedence: a node that is DOWN and drained is drained, and one that saves power is neither down nor failed.
_WORDS = (
    (("DRAIN",), "'drained'"), (tuple(sorted(POWER_FLAGS)), "NULL"), (("DOWN", "ERROR"), "'down'"), (("FAIL",), "'failed'"),
    (("INVALID_REG",), "'invalid'"), (("MAINTENANCE",), "'maintenance'"), (("REBOOT_ISSUED",), "'reboot'"),
)  # fmt: skip
_BAD = " ".join(f"WHEN regexp_matches(state, '{pattern_of(names)}') THEN {word}" for names, word in _WORDS)
_OWNER = " ".join(
    f"WHEN regexp_matches(reason, $owner$(?i)^(?:{pattern})$owner$) THEN '{name}'" for name, pattern in OWNERS
)

#: An update of a node is logged that soon after it was asked for: it waits for slurmctld's locks.
ASKED_WITHIN = "INTERVAL 5 SECOND"

#: slurmctld's lines by node. ``bad`` is null for a return to service; a reason alone says nothing about the state.
_LOGGED = f"""
  SELECT time, cluster, event, message, event_id, TRY_CAST(json_extract_string(entities, '$.uid') AS BIGINT) AS uid, upper(json_extract_string(entities, '$.state')) AS state,
         nullif(trim(json_extract_string(entities, '$.reason')), '') AS reason,
         CASE WHEN contains(message, 'update_node:') THEN '{UNNAMED}' ELSE '{BY_ITSELF}' END AS actor,
         unnest(CASE json_type(entities, '$.nodes') WHEN 'ARRAY' THEN CAST(json_extract(entities, '$.nodes') AS VARCHAR[])
                ELSE [json_extract_string(entities, '$.nodes')] END) AS host
  FROM model.events WHERE layer = 'slurmctld' AND event IN ('slurm.node_down', 'slurm.node_drain', 'slurm.node_up',
                                                            'slurm.node_invalid', 'slurm.node_reason', 'slurm.node_reboot',
                                                            'slurm.node_request', 'slurm.node_request_refused')"""

#: By line, who asked slurmctld for that update: the only user whose request was not refused and came just before it.
_ASKED = f"""
  SELECT l.event_id, CASE WHEN count(DISTINCT r.uid) = 1 THEN 'uid ' || min(r.uid) END AS actor
  FROM logged l JOIN logged r ON l.actor = '{UNNAMED}' AND r.event = 'slurm.node_request' AND r.uid IS NOT NULL
    AND l.cluster IS NOT DISTINCT FROM r.cluster AND l.time BETWEEN r.time AND r.time + {ASKED_WITHIN}
  WHERE NOT EXISTS (SELECT 1 FROM logged f WHERE f.event = 'slurm.node_request_refused' AND f.uid = r.uid
                    AND f.cluster IS NOT DISTINCT FROM r.cluster AND f.time BETWEEN r.time AND r.time + {ASKED_WITHIN})
  GROUP BY l.event_id"""

_LINES = """
  SELECT g.* REPLACE (coalesce(a.actor, g.actor) AS actor) FROM logged g LEFT JOIN asked a ON g.event_id = a.event_id"""

_CHANGES = """
  SELECT *, CASE
           WHEN event = 'slurm.node_drain' THEN 'drained'
           WHEN event = 'slurm.node_down' THEN CASE WHEN starts_with(state, 'FAIL') THEN 'failed' ELSE 'down' END
           WHEN regexp_matches(message, 'state to DRAIN') THEN 'drained' WHEN regexp_matches(message, 'state to INVAL') THEN 'invalid'
         END AS bad,
         CASE WHEN contains(message, 'not responding') THEN 'Not responding' ELSE reason END AS why
  FROM lines WHERE host IS NOT NULL AND (event IN ('slurm.node_drain', 'slurm.node_down')
    OR (event = 'slurm.node_invalid' AND regexp_matches(message, 'state to (INVAL|DRAIN)'))
    OR (event = 'slurm.node_up' AND regexp_matches(message, '(?i)returned to service|state set to|undrain')))"""

#: A state that accounting says ended in the second in which it began lasted for a moment. Polls repeat themselves for
#: days, so each text is interpreted once.
_SEEN = f"""
  SELECT s.cluster, s.host, s.time, w.bad, s.state AS said, nullif(trim(s.reason), '') AS reason,
         nullif(s.actor, '') AS actor, coalesce(s.source, '') AS source, CAST(NULL AS VARCHAR) AS event_id
  FROM model.node_states s LEFT JOIN words w ON s.state = w.state WHERE s.time IS NOT NULL AND s.host IS NOT NULL
  UNION ALL
  SELECT s.cluster, s.host, greatest(s.until, s.time + INTERVAL 1 MICROSECOND), NULL, NULL, NULL, NULL, coalesce(s.source, ''), NULL
  FROM model.node_states s JOIN words w ON s.state = w.state
  WHERE s.until IS NOT NULL AND s.time IS NOT NULL AND s.host IS NOT NULL AND w.bad IS NOT NULL
  UNION ALL
  SELECT c.cluster, c.host, c.time, c.bad, coalesce(c.state, c.bad, 'returned'),
         coalesce(c.why, CASE WHEN c.time - r.time <= {REASON_WITHIN} THEN r.reason END), c.actor, 'slurmctld', c.event_id
  FROM changes c ASOF LEFT JOIN reasons r ON c.cluster IS NOT DISTINCT FROM r.cluster AND c.host = r.host AND c.time >= r.time"""

#: Of nodes that were ever out of service, without the observations in service that follow another one: most polls say
#: nothing else.
_CHANGED = f"""
  SELECT * EXCLUDE (former) FROM (
    SELECT *, lag(coalesce(bad, '')) OVER (PARTITION BY cluster, host ORDER BY time, bad NULLS FIRST, {_TIES}) AS former
    FROM (SELECT o.* FROM observed o SEMI JOIN (SELECT DISTINCT cluster, host FROM observed WHERE bad IS NOT NULL) b
          ON o.host = b.host AND o.cluster IS NOT DISTINCT FROM b.cluster))
  WHERE bad IS NOT NULL OR event_id IS NOT NULL OR former IS DISTINCT FROM ''"""

#: Of a node's observations in order, those that begin being out of service, with the time at which it was back.
_STRETCHES = f"""
  SELECT cluster, host, time AS start, good AS "end" FROM (
    SELECT *, lag(bad) OVER w AS before,
           min(time) FILTER (bad IS NULL) OVER (PARTITION BY cluster, host ORDER BY time, bad NULLS FIRST, {_TIES}
                                                ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS good
    FROM seen WINDOW w AS (PARTITION BY cluster, host ORDER BY time, bad NULLS FIRST, {_TIES}))
  WHERE bad IS NOT NULL AND before IS NULL"""

#: slurmctld's own lines have one clock: a node that it returned to service and took out of it again was back, however shortly.
_AGAIN = """
  SELECT cluster, host, time, back FROM (
    SELECT cluster, host, time, bad, lag(time) OVER w AS back, lag(bad) OVER w AS before, lag(event_id) OVER w AS earlier FROM changes
    WINDOW w AS (PARTITION BY cluster, host ORDER BY time, bad NULLS FIRST, event_id))
  WHERE bad IS NOT NULL AND before IS NULL AND earlier IS NOT NULL"""

_EPISODES = f"""
  SELECT cluster, host, number, min(start) AS start, CASE WHEN bool_or("end" IS NULL) THEN NULL ELSE max("end") END AS "end"
  FROM (SELECT *, sum(fresh) OVER (PARTITION BY cluster, host ORDER BY start) AS number
        FROM (SELECT s.*, CASE WHEN s.start - s.ended <= {SAME_PERIOD} AND NOT coalesce(a.back > s.began, false) THEN 0 ELSE 1 END AS fresh
              FROM (SELECT *, lag("end") OVER w AS ended, lag(start) OVER w AS began FROM stretches
                    WINDOW w AS (PARTITION BY cluster, host ORDER BY start)) s
              ASOF LEFT JOIN again a ON s.cluster IS NOT DISTINCT FROM a.cluster AND s.host = a.host AND s.start + INTERVAL 1 SECOND >= a.time))
  GROUP BY cluster, host, number"""

#: Observations of each episode. A state that another source contradicts at once, before and after, is an old answer.
_DURING = f"""
  SELECT *, CASE WHEN lag(state) OVER w = lead(state) OVER w AND lead(time) OVER w - time <= {SAME_PERIOD}
            THEN lag(state) OVER w ELSE state END AS steady
  FROM (SELECT o.*, e.number, e."end", coalesce(o.bad, last_value(o.bad IGNORE NULLS) OVER (
                 PARTITION BY o.cluster, o.host, e.number ORDER BY o.time, o.bad NULLS LAST, o.said, o.source, o.event_id, o.reason, o.actor
                 ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)) AS state
        FROM (SELECT * FROM seen WHERE bad IS NOT NULL
              UNION ALL SELECT cluster, host, time, NULL, 'reason', reason, actor, 'slurmctld', event_id FROM reasons WHERE reason IS NOT NULL
              UNION ALL SELECT cluster, host, time, NULL, 'reboot', NULL, NULL, 'slurmctld', event_id FROM lines WHERE event = 'slurm.node_reboot') o
        ASOF JOIN episodes e ON o.cluster IS NOT DISTINCT FROM e.cluster AND o.host = e.host AND o.time >= e.start
        WHERE e."end" IS NULL OR o.time <= e."end")
  WINDOW w AS (PARTITION BY cluster, host, number ORDER BY time, bad NULLS LAST, {_TIES})"""

#: Numbered by state, then by reason: ``sinfo`` cuts reasons short, so one that continues another is the same.
_PARTS = f"""
  SELECT *, sum(CASE WHEN reason IS NULL OR earlier IS NULL OR starts_with(lower(reason), lower(earlier))
                     OR starts_with(lower(earlier), lower(reason)) THEN 0 ELSE 1 END)
            OVER (PARTITION BY cluster, host, number, part ORDER BY time, bad NULLS LAST, {_TIES}) AS reason_part
  FROM (SELECT *, last_value(reason IGNORE NULLS) OVER (
                 PARTITION BY cluster, host, number, part ORDER BY time, bad NULLS LAST, {_TIES}
                 ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS earlier,
               lag(struct_pack(said, reason, actor)) OVER (
                 PARTITION BY cluster, host, number, source ORDER BY time, bad NULLS LAST, said, event_id, reason, actor) AS repeated
        FROM (SELECT *, sum(other) OVER (PARTITION BY cluster, host, number ORDER BY time, bad NULLS LAST, {_TIES}) AS part
              FROM (SELECT *, CASE WHEN steady IS NOT DISTINCT FROM lag(steady) OVER (
                             PARTITION BY cluster, host, number ORDER BY time, bad NULLS LAST, {_TIES}) THEN 0 ELSE 1 END AS other
                    FROM during)))"""

_PERIODS = f"""
  SELECT cluster, host, number, part, reason_part, min(time) AS begin, any_value("end") AS "end", min(steady) AS state,
         arg_max(reason, struct_pack(long := length(reason), reason)) AS reason,
         arg_max(actor, struct_pack(known := CASE WHEN source = 'slurmctld' THEN -epoch_us(time) ELSE length(actor) END, actor)) AS actor,
         CAST(to_json(list(struct_pack(
           time := strftime(time, '%Y-%m-%dT%H:%M:%S.%fZ'), state := said, reason := coalesce(reason, ''), actor := coalesce(actor, ''),
           source := source, event_id := coalesce(event_id, '')) ORDER BY time, {_TIES})
           FILTER (repeated IS DISTINCT FROM struct_pack(said, reason, actor))[:{MOST_EVIDENCE}]) AS VARCHAR) AS evidence
  FROM parts GROUP BY cluster, host, number, part, reason_part"""

#: Pending jobs that Slurm's tools showed waiting for a node, while it was out of service.
_WAITING = """
  SELECT f.cluster, f.host, f.begin, count(DISTINCT w.job_id) AS jobs
  FROM followed f JOIN (SELECT cluster, job_id, observed_at, unnest(waits_for) AS host FROM raw.jobs
                        WHERE waits_for IS NOT NULL AND observed_at IS NOT NULL) w
  ON f.host = w.host AND (w.cluster IS NULL OR f.cluster IS NOT DISTINCT FROM w.cluster)
     AND w.observed_at BETWEEN f.begin AND coalesce(f.other, f."end", TIMESTAMP '9999-01-01')
  GROUP BY f.cluster, f.host, f.begin"""

_NEWEST = """
  SELECT cluster, max(time) AS newest FROM (
    SELECT cluster, max(time) AS time FROM model.events GROUP BY cluster
    UNION ALL SELECT cluster, max(time) AS time FROM model.node_states GROUP BY cluster)
  GROUP BY cluster"""

DRAINS = f"""(
WITH logged AS MATERIALIZED ({_LOGGED}
), asked AS ({_ASKED}
), lines AS ({_LINES}
), changes AS ({_CHANGES}
), reasons AS (
  SELECT time, cluster, host, reason, actor, event_id FROM lines WHERE event = 'slurm.node_reason' AND host IS NOT NULL
), words AS (SELECT state, CASE {_BAD} END AS bad FROM (SELECT DISTINCT state FROM model.node_states)
), observed AS ({_SEEN}
), seen AS MATERIALIZED ({_CHANGED}
), stretches AS ({_STRETCHES}
), again AS ({_AGAIN}
), episodes AS ({_EPISODES}
), during AS ({_DURING}
), parts AS ({_PARTS}
), periods AS ({_PERIODS}
), newest AS ({_NEWEST}
), followed AS (
  SELECT *, lead(begin) OVER w AS other, CASE WHEN row_number() OVER w = 1 THEN 1 ELSE 0 END AS first
  FROM periods WINDOW w AS (PARTITION BY cluster, host, number ORDER BY begin, part, reason_part)
), returns AS (
  SELECT e.cluster, e.host, e.number, arg_min(s.actor, s.time) AS actor FROM episodes e JOIN seen s
  ON e.cluster IS NOT DISTINCT FROM s.cluster AND e.host = s.host AND s.bad IS NULL AND s.actor IS NOT NULL
     AND s.event_id IS NOT NULL AND s.time > e.start AND s.time BETWEEN e."end" - {SAME_PERIOD} AND e."end" + {SAME_PERIOD}
  GROUP BY e.cluster, e.host, e.number
), waiting AS ({_WAITING}
)
SELECT p.cluster, p.host, p.state, p.actor, p.reason,
       CASE WHEN p.reason IS NULL THEN NULL {_OWNER.replace("regexp_matches(reason", "regexp_matches(p.reason")} ELSE 'admin' END AS owner,
       p.begin, coalesce(p.other, p."end") AS "end", p.evidence, CASE WHEN p.other IS NULL THEN r.actor END AS undone_by,
       (epoch_us(coalesce(p.other, p."end", greatest(n.newest, p.begin))) - epoch_us(p.begin)) / 1e6 AS seconds,
       CAST(sum(p.first) OVER (PARTITION BY p.cluster, p.host ORDER BY p.begin RANGE BETWEEN {REPEATED_WITHIN} PRECEDING AND CURRENT ROW)
            AS BIGINT) AS times, w.jobs AS jobs_waiting
FROM followed p
LEFT JOIN waiting w ON p.cluster IS NOT DISTINCT FROM w.cluster AND p.host = w.host AND p.begin = w.begin
LEFT JOIN returns r ON p.cluster IS NOT DISTINCT FROM r.cluster AND p.host = r.host AND p.number = r.number
LEFT JOIN newest n ON p.cluster IS NOT DISTINCT FROM n.cluster
)"""
