"""Lines whose ``event`` turned out to be a false claim: of hosts that write as slurmctld and do not run it, and of
nodes whose address sent them in another host's name.

This may become known long after a line was stored, and in files that are never rewritten. So the correlator stores the
names here, and everything that shows lines to people applies them: a line keeps its text, its event becomes ``other``,
and ``claims`` holds the claimed event. ``raw.log_view`` has the event as parsed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from store.questions.authority import RELAYED
from store.questions.writers import of_disowned

#: The fact that holds the names.
FACT = "disowned"
#: Separates the parts of a name; occurs in no name of a cluster or host.
SEPARATOR = "\x1f"
_CONTROLLERS, _SENDERS, _FILES = "slurmctld", "senders", "slurmctld_files"


def fact(
    controllers: Iterable[tuple[str | None, str]],
    senders: Iterable[tuple[str | None, str, str]],
    files: Iterable[tuple[str | None, str]] = (),
) -> str:
    """The fact's text. ``controllers``: cluster and host of those that write as slurmctld and do not run it;
    ``senders``: cluster, address and host for lines that a node's address sent in that host's name; ``files``: cluster
    and host of those of ``controllers`` whose own file of slurmctld's is a false claim too."""
    return json.dumps(
        {
            _CONTROLLERS: sorted({SEPARATOR.join((cluster or "", host)) for cluster, host in controllers}),
            _FILES: sorted({SEPARATOR.join((cluster or "", host)) for cluster, host in files}),
            _SENDERS: sorted({SEPARATOR.join((cluster or "", address, host)) for cluster, address, host in senders}),
        }
    )


def has_claims(known: str | None) -> bool:
    """Does the fact's text name anyone?"""
    return known is not None and any(json.loads(known).values())


def senders(known: str | None) -> list[str]:
    """Who sent lines in another host's name, in words; ``known``: the fact's text."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for name in json.loads(known).get(_SENDERS, ()) if known else ():
        cluster, address, host = name.split(SEPARATOR)
        hosts.setdefault((cluster, address), []).append(host)
    return [
        f"{address} sent lines in the name of {named[0] if len(named) == 1 else f'{named[0]} and {len(named) - 1} other hosts'}, whose "
        "address it is not; they make no event. If it forwards lines of others, name it in relays"
        for (_, address), named in sorted(hosts.items())
    ]


def claims(rows: Sequence[dict[str, Any]], known: str | None) -> list[dict[str, Any]]:
    """Rows about lines (``cluster``, ``host``, ``source``, ``format``, ``file``, ``event``, ``entities``,
    ``authority``) as shown to people; ``known``: the fact's text. Each row that claims an event gets ``claims``."""
    names: Mapping[str, list[str]] = json.loads(known) if known else {}
    controllers, senders, files = (frozenset(names.get(part, ())) for part in (_CONTROLLERS, _SENDERS, _FILES))
    if not controllers and not senders:
        return list(rows)
    return [
        row | {"event": "other", "claims": row["event"], "authority": of_disowned(row["authority"])}
        if _is_disowned(row, controllers, senders, files)
        else row
        for row in rows
    ]


def _is_disowned(
    row: Mapping[str, Any], controllers: frozenset[str], senders: frozenset[str], files: frozenset[str]
) -> bool:
    if row["event"] in (None, "other"):
        return False
    cluster, host = row["cluster"] or "", row["host"] or ""
    own = row["format"] == "slurm" and not (row["file"] or "").startswith(RELAYED)
    if row["source"] == "slurmctld" and SEPARATOR.join((cluster, host)) in (files if own else controllers):
        return True
    if not senders or '"sender"' not in (row["entities"] or ""):
        return False
    return SEPARATOR.join((cluster, str(json.loads(row["entities"]).get("sender")), host)) in senders


def _names(part: str) -> str:
    return f"CAST(json_extract(max(value), '$.{part}') AS VARCHAR[])"


def _joined(*columns: str) -> str:
    return f"concat_ws(chr({ord(SEPARATOR)}), {', '.join(columns)})"


#: The fact as a relation of one row, for a cross join: subqueries in the condition would run for each place that uses
#: it, and slow a query that needs none of them down twentyfold.
NAMES = f"""(SELECT {_names(_CONTROLLERS)} AS disowned_controllers, {_names(_SENDERS)} AS disowned_senders,
  {_names(_FILES)} AS disowned_files
  FROM model.facts WHERE name = '{FACT}')"""

#: The same as ``claims``, as an SQL condition on the columns of ``raw.log_view`` and of ``NAMES``.
IS_DISOWNED = f"""(event <> 'other' AND (
  (source = 'slurmctld' AND list_contains(
   CASE WHEN format IS DISTINCT FROM 'slurm' OR starts_with(coalesce(file, ''), '{RELAYED}')
   THEN disowned_controllers ELSE disowned_files END, {_joined("coalesce(cluster, '')", "coalesce(host, '')")}))
  OR (disowned_senders IS NOT NULL AND contains(entities, '"sender"') AND list_contains(disowned_senders,
   {_joined("coalesce(cluster, '')", "json_extract_string(entities, '$.sender')", "coalesce(host, '')")}))))"""
