"""Stamps of the future in stores that an older version wrote: they are held as ``parsers/future.py`` holds them today.

Such a version took every stamp for a time. What it stored is put right once, when the store is opened for writing: a line that says it
was written more than a day after it came, or after its file was loaded, has the time at which it came (of a file: none), its stamp in
``sender_time`` and the tag ``future``. Closed days need no look: a day of the future is never closed.
"""

from __future__ import annotations

import duckdb
import structlog

from parsers.clock import AHEAD
from parsers.future import SEEN, TAG
from store.changes import Change
from store.duckdb.open_store import OpenStore
from store.tables import LOGS

log = structlog.get_logger()
#: In ``model.facts`` once it is done.
FACT = "stamps_held"
#: A tree may have been loaded by a machine whose clock was behind by as much (collector/ingest.py).
CLOCK_BEHIND = "INTERVAL 730 DAY"

_DAY = f"to_seconds({AHEAD.total_seconds():.0f})"
#: Lines that came over a network have the moment at which they came, others that at which their file was loaded. Of a file that is
#: wholly ahead, it may be the clock of who loaded it that was wrong.
_AHEAD = f"""SELECT l.rowid AS row FROM raw.logs l WHERE l.received_time IS NOT NULL AND l.time > l.received_time + {_DAY}
UNION ALL
SELECT l.rowid FROM raw.logs l JOIN raw.files f ON f.path = l.file
WHERE l.received_time IS NULL AND (l.time > f.ingested_at + {CLOCK_BEHIND} OR (l.time > f.ingested_at + {_DAY} AND EXISTS (
  SELECT 1 FROM raw.logs o WHERE o.file = l.file AND o.time <= f.ingested_at + {_DAY})))"""
_HOLD = f"""UPDATE raw.logs SET sender_time = time, time = received_time, time_quality = 'received', resolution_us = NULL,
  tags = list_distinct(list_append(coalesce(tags, []), '{TAG}'))
WHERE rowid IN ({_AHEAD})"""
#: The latest moment at which anything is known to have come.
_LATEST = """SELECT greatest((SELECT max(received_time) FROM raw.logs), (SELECT max(ingested_at) FROM raw.files))"""


def hold(store: OpenStore) -> int:
    """Holds what is ahead, once for each store; how many lines that were. Raises ``duckdb.Error``; then nothing is changed."""
    if store.fact(FACT) is not None:
        return 0
    with store.transaction() as connection:
        held = _count(connection.execute(_HOLD))
        store.note(LOGS.name, Change(amended=held, moved=held))  # tags are a list: such rows are put behind all others
        (latest,) = connection.execute(_LATEST).fetchone() or (None,)
        if latest is not None:
            for table, columns in SEEN.items():
                for column in columns:
                    done = connection.execute(
                        f'UPDATE raw."{table}" SET "{column}" = NULL WHERE "{column}" > ?::TIMESTAMP + {CLOCK_BEHIND}',
                        [latest],
                    )
                    store.note(table, Change(amended=_count(done)))
        _inventory(connection)
    store.set_fact(FACT, str(held))
    if held:
        log.warning(
            "lines of this store were stamped after they came: they have the time at which they came (tag future)",
            lines=held,
        )
    return held


def _count(done: duckdb.DuckDBPyConnection) -> int:
    (count,) = done.fetchone() or (0,)
    return int(count)


def _inventory(connection: duckdb.DuckDBPyConnection) -> None:
    """Sources whose last time is of the future last told when something of theirs came."""
    known = "SELECT 1 FROM duckdb_tables() WHERE schema_name = 'intake' AND table_name = 'sources'"
    if connection.execute(known).fetchone() is not None:
        connection.execute(f"UPDATE intake.sources SET last_time = last_seen WHERE last_time > last_seen + {_DAY}")
