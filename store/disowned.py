"""Lines whose ``event`` turned out to be a false claim: of hosts that speak as slurmctld and run none, and of nodes whose address
sent them in another host's name.

Which these are may be known only long after a line was stored, and in files that are not written again. So the correlator keeps
the names here, and whoever shows lines to people looks them up: a line keeps its text, its event is ``other``, and ``claims``
names the event that it claims. ``raw.log_view`` has the event as it was read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from store.questions.authority import RELAYED

#: The fact that holds them.
FACT = "disowned"
#: Between the parts of a name; in no name of a cluster or host.
SEPARATOR = "\x1f"
_CONTROLLERS, _SENDERS = "slurmctld", "senders"


def fact(controllers: Iterable[tuple[str | None, str]], senders: Iterable[tuple[str | None, str, str]]) -> str:
    """The fact's text. ``controllers``: cluster and host of those that speak as slurmctld and run none; ``senders``: cluster, address
    and host of those that a node's address spoke for."""
    return json.dumps(
        {
            _CONTROLLERS: sorted({SEPARATOR.join((cluster or "", host)) for cluster, host in controllers}),
            _SENDERS: sorted({SEPARATOR.join((cluster or "", address, host)) for cluster, address, host in senders}),
        }
    )


def claims(rows: Sequence[dict[str, Any]], known: str | None) -> list[dict[str, Any]]:
    """Rows about lines (``cluster``, ``host``, ``source``, ``format``, ``file``, ``event``, ``entities``) as people see them; ``known``: the
    fact's text. Each row that claims an event has ``claims``."""
    names: Mapping[str, list[str]] = json.loads(known) if known else {}
    controllers, senders = (frozenset(names.get(part, ())) for part in (_CONTROLLERS, _SENDERS))
    if not controllers and not senders:
        return list(rows)
    return [
        row | {"event": "other", "claims": row["event"]} if _is_disowned(row, controllers, senders) else row
        for row in rows
    ]


def _is_disowned(row: Mapping[str, Any], controllers: frozenset[str], senders: frozenset[str]) -> bool:
    if row["event"] in (None, "other"):
        return False
    cluster, host = row["cluster"] or "", row["host"] or ""
    own = row["format"] == "slurm" and not (row["file"] or "").startswith(RELAYED)
    if row["source"] == "slurmctld" and not own and SEPARATOR.join((cluster, host)) in controllers:
        return True
    if not senders or '"sender"' not in (row["entities"] or ""):
        return False
    return SEPARATOR.join((cluster, str(json.loads(row["entities"]).get("sender")), host)) in senders


def _names(part: str) -> str:
    return f"CAST(json_extract(max(value), '$.{part}') AS VARCHAR[])"


def _joined(*columns: str) -> str:
    return f"concat_ws(chr({ord(SEPARATOR)}), {', '.join(columns)})"


#: The fact as a relation of one row, for a cross join: subqueries in the condition would be run for each place that uses it, and
#: cost a query that reads none of them twenty times its time.
NAMES = f"""(SELECT {_names(_CONTROLLERS)} AS disowned_controllers, {_names(_SENDERS)} AS disowned_senders
  FROM model.facts WHERE name = '{FACT}')"""

#: The same as ``claims`` as a condition in SQL, on the columns of ``raw.log_view`` and of ``NAMES``.
IS_DISOWNED = f"""(event <> 'other' AND (
  (source = 'slurmctld' AND (format IS DISTINCT FROM 'slurm' OR starts_with(coalesce(file, ''), '{RELAYED}'))
   AND list_contains(disowned_controllers, {_joined("coalesce(cluster, '')", "coalesce(host, '')")}))
  OR (disowned_senders IS NOT NULL AND contains(entities, '"sender"') AND list_contains(disowned_senders,
   {_joined("coalesce(cluster, '')", "json_extract_string(entities, '$.sender')", "coalesce(host, '')")}))))"""
