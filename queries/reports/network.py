"""Links that come and go: outages counted per device from link events, whether or not an incident was made of them."""

from __future__ import annotations

from datetime import timedelta

from parsers.moments import later
from queries.reports.model import Column, Section, Span, Timeline
from queries.reports.reader import Reader, within

LANES = 24

#: An outage lasts from the first "down" to the next "up". Repeated "down" lines in between are the same outage told
#: again, unless the machine rebooted meanwhile: then its links came back with it and nobody logged when. A copy of a
#: line that lost its host belongs to the one host that has such a device.
OUTAGES = """
WITH named AS (
  SELECT cluster, device, min(host) AS host FROM model.events
  WHERE event IN ('nic.link_down', 'nic.link_up', 'switch.port_down', 'switch.port_up') AND host IS NOT NULL
  GROUP BY ALL HAVING count(DISTINCT host) = 1
), told AS (
  SELECT e.cluster, coalesce(e.host, n.host) AS host, e.device, split_part(e.event, '.', 1) AS side, e.time,
    e.event LIKE '%\\_down' ESCAPE '\\' AS down, e.incident_id
  FROM model.events e LEFT JOIN named n ON n.cluster IS NOT DISTINCT FROM e.cluster AND n.device = e.device
  WHERE e.event IN ('nic.link_down', 'nic.link_up', 'switch.port_down', 'switch.port_up') AND e.device IS NOT NULL
), boots AS (
  SELECT DISTINCT cluster, root_host AS host, "end" AS time FROM model.incidents WHERE root_event IN ('node.reboot', 'node.panic')
), marked AS (
  SELECT cluster, host, device, side, time, down, incident_id FROM told
  UNION ALL
  SELECT t.cluster, t.host, t.device, t.side, b.time, false, NULL
  FROM (SELECT DISTINCT cluster, host, device, side FROM told) t
  JOIN boots b ON b.cluster IS NOT DISTINCT FROM t.cluster AND b.host = t.host
), ordered AS (
  SELECT *, coalesce(lag(down) OVER track, false) AS before,
    min(time) FILTER (NOT down) OVER (track ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS up
  FROM marked WINDOW track AS (PARTITION BY cluster, host, device, side ORDER BY time, down DESC)
), outages AS (
  SELECT cluster, coalesce(host, '') AS host, device, side, time AS start, up AS "end", incident_id FROM ordered WHERE down AND NOT before
)
"""

_PER_LINK = f"""{OUTAGES}
SELECT o.cluster, o.host, o.device, CASE o.side WHEN 'nic' THEN 'node' ELSE 'switch' END AS side, count(*) AS outages,
  coalesce(sum(epoch("end") - epoch(start)), 0) AS down_s, max(epoch("end") - epoch(start)) AS longest_s,
  count(*) FILTER ("end" IS NULL) AS open, min(start) AS first_seen, max(start) AS last_seen,
  max(coalesce(j.jobs, 0)) AS jobs
FROM outages o LEFT JOIN (
  SELECT cluster, root_host, root_device, CAST(sum(json_array_length(document, '$.jobs')) AS BIGINT) AS jobs
  FROM model.incidents GROUP BY ALL
) j ON j.cluster IS NOT DISTINCT FROM o.cluster AND j.root_host = o.host AND j.root_device = o.device
WHERE {within('coalesce("end", start)')} GROUP BY ALL ORDER BY outages DESC, down_s DESC, host, device, cluster
"""

_SPANS = f"""{OUTAGES}
SELECT cluster, host, device, start, "end" FROM outages WHERE side = 'nic' AND {within('coalesce("end", start)')} ORDER BY start, host, device, cluster
"""

_INCIDENTS = f"""
SELECT cluster, root_event AS cause, root_host AS host, root_device AS device, start, severity,
  coalesce(json_array_length(document, '$.jobs'), 0) AS jobs, document->>'$.title' AS title
FROM model.incidents WHERE category = 'infra.network' AND {within('coalesce("end", start)')} ORDER BY start, incident_id
"""


def network(reader: Reader) -> Section:
    """Outages per link end, a timeline of the nodes' ends, and the incidents they became."""
    columns = [
        Column("host", "Host", "name"), Column("device", "Device", "name"), Column("side", "Seen by", "name"),
        Column("outages", "Outages", "count", bar=True), Column("down_s", "Down in all", "seconds"), Column("longest_s", "Longest", "seconds"),
        Column("open", "Never seen up again", "count"), Column("jobs", "Jobs hurt", "count"),
        Column("first_seen", "First", "time"), Column("last_seen", "Last", "time"),
    ]  # fmt: skip
    links = reader.rows(_PER_LINK)
    told = [Column("cause", "Cause", "name"), Column("host", "Host", "name"), Column("device", "Device", "name"), Column("start", "Start", "time"),
            Column("severity", "Severity", "name"), Column("jobs", "Jobs hurt", "count"), Column("title", "What happened")]  # fmt: skip
    return Section(
        "network", "Network instability", "Both ends of one cable are listed when both logged: the node's and the switch's rows then tell "
        "of the same outages. Down in all leaves out outages whose end nobody logged.",
        tables=(reader.table("Outages per link end", columns, links, empty="No link outage was logged."),
                reader.table("Network incidents", told, reader.rows(_INCIDENTS), empty="No network incident.")),
        timelines=_timeline(reader),
    )  # fmt: skip


def _timeline(reader: Reader) -> tuple[Timeline, ...]:
    lanes: dict[str, list[Span]] = {}
    for row in reader.rows(_SPANS):
        name = f"{reader.called(row['host'], row['cluster'])} {row['device']}".strip()
        length = f"{(row['end'] - row['start']).total_seconds():.1f} s" if row["end"] else "not seen up again"
        lanes.setdefault(name, []).append(
            Span(row["start"], row["end"], "impact", f"no carrier from {row['start']:%H:%M:%S}, {length}")
        )
    if not lanes:
        return ()
    worst = sorted(lanes, key=lambda name: (-len(lanes[name]), name))[:LANES]
    spans = [span for name in worst for span in lanes[name]]
    start, end = min(s.start for s in spans), max(s.end or s.start for s in spans)
    return (Timeline("When links were down, as their nodes saw it", start, max(end, later(start, timedelta(seconds=1))),
                     {name: lanes[name] for name in worst}),)  # fmt: skip
