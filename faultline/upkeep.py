"""Maintenance of the store: closed days move into the archive, and data past the retention is deleted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import structlog

from faultline.backends import open_for_writing
from faultline.clock_watch import ClockWatch
from faultline.config import Config, load
from faultline.config import Store as StoreSettings
from faultline.failure import CommandError
from store import compact, is_mostly_free, set_log_aside
from store.door import Closed, Door, Dropped
from store.errors import StoreError

log = structlog.get_logger()

#: Days close once a day; checking more often includes late data, and a service that starts at noon misses none.
EVERY_S = 3600.0
#: The first check comes this long after the start, when waiting data has been stored.
FIRST_S = 300.0


@dataclass(frozen=True)
class Done:
    closed: Closed
    dropped: Dropped


def keep_up(store: Door, settings: StoreSettings, today: date | None = None, *, drop: bool = True) -> Done:
    """One round. ``today`` (UTC) is the clock's date; without ``drop`` nothing is deleted. Raises ``OSError`` and
    ``StoreError``."""
    day = today or datetime.now(UTC).date()
    dropped = Dropped()
    if drop and settings.retention_days is not None:
        dropped = store.drop_before(day - timedelta(days=settings.retention_days))
    return Done(store.close_days(day, hot_days=settings.hot_days), dropped)


def job(
    store: Door, settings: StoreSettings, is_busy: Callable[[], bool], watch: ClockWatch | None = None,
    freed: Callable[[], None] = lambda: None,
) -> Callable[[], None]:  # fmt: skip
    """The scheduler's job, run every ``EVERY_S``; a failure is logged and retried the next time, and while lines wait
    to be stored it waits too. Does nothing if ``watch`` does not trust the clock. ``freed`` is called when the database
    file has free space."""
    watched = watch or ClockWatch(store)

    def run() -> None:
        if is_busy():
            return
        try:
            before = watched.trouble
            believed = watched.look(utc_now())
            if watched.trouble is not None:
                if before is None:
                    log.warning("the clock jumped", trouble=watched.trouble)
                return
            done = keep_up(store, settings, utc_now().date(), drop=believed)
        except (OSError, StoreError) as error:
            log.warning("days not closed", error=str(error).split("\n")[0] or type(error).__name__)
            return
        if done.closed.lines or done.dropped.lines:
            freed()
        if done.closed.lines:
            log.info("days closed", days=done.closed.days, lines=done.closed.lines, bytes=done.closed.bytes)
        if done.dropped.lines:
            log.info("old days dropped", lines=done.dropped.lines, files=done.dropped.files)

    return run


def utc_now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)


def run(
    config: Path | None, data: Path | None, *, verify: bool, confirm_clock: bool = False, without_log: bool = False
) -> int:
    """The command: one round on a store that no service holds. Exit code 1 if a file of the archive has changed, or if
    nothing was done because of the clock."""
    settings: Config = load(config)
    if without_log:
        folder = data or settings.data
        try:
            aside = set_log_aside(folder)
        except StoreError as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"{folder}: the write-ahead log cannot be set aside: {error.strerror}") from error
        print(f"set aside {aside}" if aside else f"set aside nothing: {folder} has no write-ahead log")
    with open_for_writing(data or settings.data) as store:
        watch, now = ClockWatch(store), utc_now()
        if confirm_clock:
            watch.confirm(now)
        watch.look(now)
        if watch.trouble is not None:
            raise CommandError(watch.trouble)
        done = keep_up(store, settings.store, now.date())
        health = store.health(thorough=verify)
        is_free = is_mostly_free(store)
    closed, dropped = done.closed, done.dropped
    print(
        f"closed    {closed.lines:,} lines of {closed.days} day(s) into {closed.files} file(s), {closed.bytes:,} bytes"
    )
    if settings.store.retention_days is not None:
        print(f"dropped   {dropped.lines:,} lines older than {settings.store.retention_days} days")
    print(
        f"archive   {health.archived_lines:,} lines, {health.info['archived']:,} bytes{', read and compared' if verify else ''}"
    )
    for text in health.damaged:
        print(f"WRONG  {text}")
    if is_free:  # a service that reads it now, or a full disk, is no failure of what was done
        try:
            shrunk = compact(data or settings.data)
            print(f"compacted {shrunk.before:,} bytes to {shrunk.after:,}")
        except StoreError as error:
            print(f"compacted nothing: {error}")
    return 1 if health.damaged else 0
