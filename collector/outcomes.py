"""What parsing a piece of the spool yields besides rows: batches set aside, blind periods, senders' statuses."""

from __future__ import annotations

from datetime import UTC, datetime

import structlog

from collector.ledger import Ledger, Step
from collector.pieces import Piece
from collector.quarantine import Quarantine
from collector.receivers.base import moment_of

log = structlog.get_logger()


def describe(piece: Piece, step: Step, ledger: Ledger, quarantine: Quarantine) -> None:
    """Adds a piece's information besides its rows to the step; sets batches aside that cannot be parsed."""
    now = datetime.now(UTC).replace(tzinfo=None)
    step.keys += piece.keys
    step.opaque += piece.opaque
    bad = {place for outcome in piece.outcomes for place, _ in outcome.poison}
    for outcome in piece.outcomes:
        for place, reason in outcome.poison:
            row = quarantine.put(piece.records[place], ledger.spool_id, reason, now)
            step.quarantine.append(row)
            log.error(
                "batch set aside", id=row["id"], kind=row["kind"], peer=row["peer"], reason=reason,
                file=str(quarantine.path(row["id"])), replay=f"POST /api/v1/quarantine/{row['id']}/replay",
            )  # fmt: skip
        for period in outcome.blind:
            moments = {n: None if period[n] is None else moment_of(period[n]) for n in ("start", "end", "received")}
            step.blind.append({**period, **moments})
        for status in outcome.status:
            if status["host"]:
                ledger.met(
                    step, status["host"], status["cluster"], moment_of(status["received"]), boot_id=status["boot_id"],
                    boot_time=moment_of(status["boot_time"]) if status["boot_time"] else None, status=status["status"],
                )  # fmt: skip
    step.replayed += [
        str(r.meta["replay"]) for place, r in enumerate(piece.records) if r.meta.get("replay") and place not in bad
    ]
