"""What a node is called in a store of several clusters, where two of them may have a host of the same name.

A host keeps its name as long as one cluster only tells of it. One that several have is called with its cluster in each of
them, ``gpu02@east`` and ``gpu02@west``: nodes go on, so none of them is the last as a run is (``store.run_names``). Rows of
no cluster are of every node of that name, as they are of every run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from store.duckdb.derived import STATES
from store.run_names import UNNAMED

Ask = Callable[[str, Sequence[Any]], list[dict[str, Any]]]

_ERRORS = "('error', 'critical', 'crit', 'alert', 'emerg')"


def nodes(states: str = STATES) -> str:
    """A query for every node that Slurm or a log line named: ``name`` in the whole store, ``host`` and ``cluster``. ``states``:
    where its states are read from."""
    return f"""(
  SELECT CASE WHEN clusters > 1 THEN host || '@' || cluster ELSE host END AS name, host, cluster FROM (
    SELECT host, cluster, count(cluster) OVER (PARTITION BY host) AS clusters
    FROM (SELECT host, cluster FROM {states} UNION SELECT host, cluster FROM model.events)
    WHERE host IS NOT NULL AND host <> '')
  WHERE cluster IS NOT NULL OR clusters = 0)"""


def _of_nodes(columns: str, table: str, host: str = "host", *, grouped: bool = True) -> str:
    """``columns`` of a table's rows ``t`` of each node ``n``: those of its cluster and those of none."""
    return f"""SELECT n.name, {columns} FROM {table} t JOIN named n ON t.{host} = n.host
      AND (t.cluster IS NULL OR t.cluster IS NOT DISTINCT FROM n.cluster){" GROUP BY n.name" if grouped else ""}"""


_STATE = "arg_max_null(state, time) AS state, arg_max_null(reason, time) AS reason"
_EVENTS = "sum(events) AS events, sum(errors) AS errors, max(last_event) AS last_event"
#: All nodes by name, with the newest state, since when it was told without another between, and what happened to each. Bound: a part of the name, the name behind which they
#: begin, the host or NULL (what is counted is that host's only), how many.
LISTED = f"""
WITH states AS MATERIALIZED {STATES},
named AS MATERIALIZED (SELECT * FROM {nodes("states")} WHERE $3 IS NULL OR host = $3),
counted AS (SELECT host, cluster, count(*) AS events, max(time) AS last_event, count(*) FILTER (severity IN {_ERRORS}) AS errors
            FROM model.events WHERE $3 IS NULL OR host = $3 GROUP BY host, cluster),
latest AS ({_of_nodes(_STATE, "states")}),
otherwise AS (SELECT name, max(time) FILTER (lower(t.state) IS DISTINCT FROM lower(l.state)) AS last
              FROM ({_of_nodes("t.state, t.time", "states", grouped=False)}) t JOIN latest l USING (name) GROUP BY name),
held AS (SELECT name, min(time) FILTER (last IS NULL OR time > last) AS since
         FROM ({_of_nodes("t.time", "states", grouped=False)}) JOIN otherwise USING (name) GROUP BY name),
happened AS ({_of_nodes(_EVENTS, "counted")}),
rooted AS ({_of_nodes("count(*) AS incidents", "model.incidents", "root_host")})
SELECT name, host, cluster, state, reason, since, CAST(coalesce(events, 0) AS BIGINT) AS events,
       CAST(coalesce(errors, 0) AS BIGINT) AS errors, last_event, coalesce(incidents, 0) AS incidents
FROM named LEFT JOIN latest USING (name) LEFT JOIN held USING (name) LEFT JOIN happened USING (name) LEFT JOIN rooted USING (name)
WHERE contains(name, $1) AND name > $2
ORDER BY name LIMIT $4"""


def parted(name: str) -> tuple[str, str | None]:
    """gpu02@east -> gpu02, east; a name without a cluster -> itself, None."""
    host, at, cluster = name.rpartition("@")
    return (host, cluster) if at else (name, None)


class NodeNames:
    """Which hosts have their cluster in their name. ``several``: whether the store has more than one cluster at all."""

    def __init__(self, ask: Ask) -> None:
        clusters = ask("SELECT DISTINCT cluster FROM model.events UNION SELECT DISTINCT cluster FROM model.runs", [])
        self.several = len({row["cluster"] for row in clusters} - {None}) > 1
        found = ask(f"SELECT DISTINCT host FROM {nodes()} WHERE name <> host", []) if self.several else []
        self.shared = frozenset(str(row["host"]) for row in found)

    def of(self, host: object, cluster: object = None) -> str:
        """The name of a cluster's host; without the cluster that of the host, which a reader then has to choose from."""
        shared = str(host) in self.shared and cluster
        return f"{host}@{cluster}" if shared else str(host)


def find(rows: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any] | None:
    """The node that is called ``name`` among all of its host, also by a cluster that need not be named; None if none is."""
    host, cluster = parted(name)
    for row in rows:
        if row["name"] == name or (row["host"] == host and (row["cluster"] or UNNAMED) == cluster):
            return row
    return None
