"""Holds back timestamps in the future in stores of an older version, as ``parsers/future.py`` does for new lines.

Such a version accepted every timestamp. Its data is corrected once, when the store is opened for writing: a line dated
more than a day after its arrival, or after its file was loaded, gets its time of arrival (in a file: none), its
timestamp in ``sender_time`` and the tag ``future``. Closed days need no check: a day in the future is never closed.
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
#: A tree may have been loaded by a machine whose clock was this far behind (collector/ingest.py).
CLOCK_BEHIND = "INTERVAL 730 DAY"

_DAY = f"to_seconds({AHEAD.total_seconds():.0f})"
#: Lines from the network are compared with their time of arrival, others with the time at which their file was loaded.
#: If all of a file is ahead, the clock of the loading machine may be wrong.
_AHEAD = f"""SELECT l.rowid AS row FROM raw.logs l WHERE l.received_time IS NOT NULL AND l.time > l.received_time + {_DAY}
UNION ALL
SELECT l.rowid FROM raw.logs l JOIN raw.files f ON f.path = l.file
WHERE l.received_time IS NULL AND (l.time > f.ingested_at + {CLOCK_BEHIND} OR (l.time > f.ingested_at + {_DAY} AND EXISTS (
  SELECT 1 FROM raw.logs o WHERE o.file = l.file AND o.time <= f.ingested_at + {_DAY})))"""
_HOLD = f"""UPDATE raw.logs SET sender_time = time, time = received_time, time_quality = 'received', resolution_us = NULL,
  tags = list_distinct(list_append(coalesce(tags, []), '{TAG}'))
WHERE rowid IN ({_AHEAD})"""
#: The latest time at which anything is known to have arrived.
_LATEST = """SELECT greatest((SELECT max(received_time) FROM raw.logs), (SELECT max(ingested_at) FROM raw.files))"""


def hold(store: OpenStore) -> int:
    """Holds back timestamps in the future, once per store; returns the number of lines. Raises ``duckdb.Error``;
    nothing is changed then."""
    if store.fact(FACT) is not None:
        return 0
    with store.transaction() as connection:
        held = _count(connection.execute(_HOLD))
        store.note(LOGS.name, Change(amended=held, moved=held))  # tags are a list: such rows are appended at the end
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
    """Sources whose last time is in the future get the last arrival instead."""
    known = "SELECT 1 FROM duckdb_tables() WHERE schema_name = 'intake' AND table_name = 'sources'"
    if connection.execute(known).fetchone() is not None:
        connection.execute(f"UPDATE intake.sources SET last_time = last_seen WHERE last_time > last_seen + {_DAY}")
