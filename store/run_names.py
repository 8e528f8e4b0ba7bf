"""What a run is called in a store of several clusters, where two of them may have used a number.

``run_key`` is a run's name in its own cluster. The run of that name which ended last is called so in the whole store; the
others have their cluster behind the number: ``15@east``, ``15@east#1``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: What stands for a cluster that nobody named.
UNNAMED = "-"

_LAST = 'row_number() OVER (PARTITION BY run_key ORDER BY coalesce("end", start, submit) DESC NULLS LAST, cluster NULLS LAST) = 1'
_QUALIFIED = f"regexp_replace(run_key, '(#[0-9]+)?$', '@' || coalesce(cluster, '{UNNAMED}') || '\\1')"

#: ``model.runs`` with ``run_key`` as the name in the whole store, and ``own_key`` as the name in the run's cluster.
OF_SEVERAL = f"""(SELECT * REPLACE (CASE WHEN {_LAST} THEN run_key ELSE {_QUALIFIED} END AS run_key), run_key AS own_key
  FROM model.runs)"""
_OF_ONE = "(SELECT *, run_key AS own_key FROM model.runs)"

Ask = Callable[[str, Sequence[Any]], list[dict[str, Any]]]


def named_runs(ask: Ask) -> str:
    """What to read runs from: to find names that several clusters use takes a look at all runs, one cluster has none."""
    clusters = ask(f"SELECT count(DISTINCT coalesce(cluster, '{UNNAMED}')) AS n FROM model.runs", [])[0]["n"]
    return OF_SEVERAL if clusters > 1 else _OF_ONE


def verdicts(ask: Ask) -> list[dict[str, Any]]:
    """Runs that have a verdict, by their names in the whole store: ``run_key``, ``cluster`` and ``document``."""
    query = f"""SELECT run_key, cluster, document FROM {named_runs(ask)} WHERE document IS NOT NULL
      ORDER BY job_id, attempt, run_key"""
    return ask(query, [])


def disputed(ask: Ask) -> list[str]:
    """Runs for which trusted sources name different users, in words: they are shown to none of these. A run without a
    verdict (it goes on, or ended well) has no document: what was told of it says who is named."""
    query = """SELECT run_key, cluster, json_extract_string(document, '$.disputed') AS named FROM model.runs
      WHERE "user" IS NULL AND contains(document, '"disputed"') AND json_extract_string(document, '$.disputed') IS NOT NULL
      UNION ALL
      SELECT r.run_key, r.cluster, string_agg(DISTINCT concat(j.source, ': ', j."user", ' (', coalesce(j.uid::VARCHAR, '?'), ')'), '; '
        ORDER BY concat(j.source, ': ', j."user", ' (', coalesce(j.uid::VARCHAR, '?'), ')')) AS named
      FROM model.runs r JOIN raw.jobs j ON j.job_id = r.job_id AND j.cluster IS NOT DISTINCT FROM r.cluster
      WHERE r."user" IS NULL AND r.document IS NULL AND j."user" <> '' AND j.source NOT IN ('task_hook', 'log')
      GROUP BY ALL HAVING count(DISTINCT j."user") > 1 ORDER BY ALL LIMIT 100"""
    return [
        f"job {row['run_key']} of cluster {row['cluster'] or UNNAMED}: its user is disputed ({row['named']}); it is shown to neither. "
        "Look which source tells of another cluster or is not to be believed"
        for row in ask(query, [])
    ]


def parted(key: str) -> tuple[str, str | None]:
    """A name's part in its own cluster, and the cluster if it names one: "15@east#1" -> 15#1, east."""
    name, mark, attempt = key.partition("#")
    own, at, cluster = name.rpartition("@")
    return (f"{own}{mark}{attempt}", cluster) if at else (key, None)


def find(ask: Ask, columns: str, key: str) -> dict[str, Any] | None:
    """The run that is called ``key``, also by a cluster that need not be named; None if there is none."""
    runs = named_runs(ask)
    found = ask(f"SELECT {columns} FROM {runs} WHERE run_key = ?", [key])
    own, cluster = parted(key)
    if not found and cluster is not None:
        condition = f"own_key = ? AND coalesce(cluster, '{UNNAMED}') = ?"
        found = ask(f"SELECT {columns} FROM {runs} WHERE {condition}", [own, cluster])
    return found[0] if found else None


def renamed(document: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """An incident's document with its jobs called as in the whole store; ``names``: of its cluster's runs that differ."""
    if not names:
        return document
    jobs = {
        part: [{**item, "job_id": names.get(item["job_id"], item["job_id"])} for item in document[part]]
        for part in ("jobs", "unaffected_jobs") if document.get(part)
    }  # fmt: skip
    slowed = [names.get(key, key) for key in document.get("slowed_jobs") or ()]
    return {**document, **jobs, "slowed_jobs": slowed}


def differing(ask: Ask, cluster: str | None) -> dict[str, str]:
    """A cluster's runs that are not called in the whole store as in their cluster: name there -> name here."""
    runs = named_runs(ask)
    if runs == _OF_ONE:
        return {}
    rows = ask(
        f"SELECT own_key, run_key FROM {runs} WHERE run_key <> own_key AND cluster IS NOT DISTINCT FROM ?", [cluster]
    )
    return {str(row["own_key"]): str(row["run_key"]) for row in rows}
