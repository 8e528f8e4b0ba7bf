"""The tables of the way in: how far the spool was read, which batches are stored, who speaks, and what was not seen.

They lie in the same file as the rows, because they are changed in the same transaction.
"""

from __future__ import annotations

STATEMENTS = (
    "CREATE SCHEMA IF NOT EXISTS intake",
    # Up to where segments of one spool are in the store.
    'CREATE TABLE IF NOT EXISTS intake.watermark (spool VARCHAR, segment BIGINT, "offset" BIGINT, moved_at TIMESTAMP)',
    # The last transaction of the pipeline, and the file with lines before the watermark that wait for their segment.
    "CREATE TABLE IF NOT EXISTS intake.carried (spool VARCHAR, step VARCHAR, file VARCHAR)",
    # Stored sequence numbers of a sender's stream: "1-41,43-50".
    """CREATE TABLE IF NOT EXISTS intake.streams (
  agent VARCHAR, stream VARCHAR, epoch VARCHAR, ranges VARCHAR, received TIMESTAMP)""",
    "CREATE TABLE IF NOT EXISTS intake.keys (key VARCHAR, received TIMESTAMP)",
    # One row per host, source and stream. Seconds; times as the service's clock says, last_time as the lines say.
    """CREATE TABLE IF NOT EXISTS intake.sources (
  host VARCHAR, source VARCHAR, file VARCHAR, transport VARCHAR, first_seen TIMESTAMP, last_seen TIMESTAMP,
  last_time TIMESTAMP, lines BIGINT, events BIGINT, unparsed BIGINT, bytes BIGINT, lag_s DOUBLE, max_lag_s DOUBLE,
  late BIGINT, gap_s DOUBLE)""",
    # Lines whose stamps are held (parsers.future); stores that were made before have none.
    "ALTER TABLE intake.sources ADD COLUMN IF NOT EXISTS ahead BIGINT DEFAULT 0",
    """CREATE TABLE IF NOT EXISTS intake.nodes (
  host VARCHAR, cluster VARCHAR, first_seen TIMESTAMP, last_seen TIMESTAMP, boot_id VARCHAR, boot_time TIMESTAMP,
  boots BIGINT, status VARCHAR, status_at TIMESTAMP)""",
    # Nothing was seen of it between start and end.
    """CREATE TABLE IF NOT EXISTS intake.blind (
  host VARCHAR, source VARCHAR, stream VARCHAR, start TIMESTAMP, "end" TIMESTAMP, reason VARCHAR, lines BIGINT,
  bytes BIGINT, told_by VARCHAR, received TIMESTAMP)""",
    """CREATE TABLE IF NOT EXISTS intake.quarantine (
  id VARCHAR, kind VARCHAR, peer VARCHAR, key VARCHAR, reason VARCHAR, bytes BIGINT, received TIMESTAMP,
  set_aside_at TIMESTAMP, replayed_at TIMESTAMP)""",
)
