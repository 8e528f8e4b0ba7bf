"""The service: one process that holds the store, takes in the hook spool, concludes, serves pages, writes reports."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger

from collector.artifacts import Places
from collector.hook_spool import HookSpool
from collector.ingest import settle
from correlator.engine import correlate, result
from faultline.access import open_for_writing
from faultline.config import Config, ScheduledReport
from faultline.failure import CommandError
from store.duckdb_store import SERVICE_FILE, DuckStore

log = structlog.get_logger()

#: The hook spool is looked at this often; a job's epilog is on its page a moment later.
SPOOL_SECONDS = 1.0


class Service:
    """The running parts. ``tick()`` is one round of taking in and concluding; tests call it themselves."""

    def __init__(self, config: Config, store: DuckStore) -> None:
        self.config = config
        self.store = store
        places = Places(state_save=config.hooks.state_save, slurmd_spool=config.hooks.slurmd_spool)
        self.spool = HookSpool(config.hooks.spool or config.data / "hooks", places, config.cluster)
        self.scheduler = BackgroundScheduler(timezone="UTC")

    def start(self) -> None:
        self.tick()
        self.scheduler.add_job(self.tick, "interval", seconds=SPOOL_SECONDS, max_instances=1, coalesce=True)
        for report in self.config.reports:
            self.scheduler.add_job(self.write_report, CronTrigger.from_crontab(report.cron, timezone="UTC"), [report])
        self.scheduler.start()

    def stop(self) -> None:
        with suppress(Exception):
            self.scheduler.shutdown(wait=True)

    def tick(self) -> None:
        """Takes in waiting hook files; concludes anew if there were any."""
        taken = self.spool.take(self.store)
        for warning in self.spool.warnings:
            log.warning("hook spool", file=warning)
        self.spool.warnings.clear()
        if taken:
            settle(self.store)
            correlate(self.store, settings=self.config.slurm, edge_paths=self.config.edges)

    def write_report(self, report: ScheduledReport, now: datetime | None = None) -> Path:
        """Writes one scheduled report under a name with its date; never leaves half a file."""
        from queries import reports

        until = now or datetime.now(UTC).replace(tzinfo=None)
        text = reports.render(
            reports.run(self.store, report.name, since=until - timedelta(days=report.days), until=until), report.format
        )
        report.folder.mkdir(parents=True, exist_ok=True)
        path = report.folder / f"{report.name}-{until:%Y-%m-%dT%H%M}.{report.format}"
        draft = path.with_name(f".{path.name}.draft")
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
        log.info("report written", path=str(path))
        return path


def build_app(service: Service) -> Any:
    """The web room over this service's store, with the routes that need more than the store."""
    from fastapi import HTTPException, Response

    from queries import reports
    from web.app import create_app

    listing = [
        {"name": r.name, "title": r.title, "description": r.description, "href": f"/api/v1/reports/{r.name}"}
        for r in reports.REPORTS.values()
    ]
    app = create_app(service.store, settings={"reports": listing, "cluster": service.config.cluster})

    @app.get("/api/v1/result", tags=["incidents"])
    def whole_result() -> dict[str, Any]:
        """corr-result/1: every incident and verdict."""
        return result(service.store)

    @app.get("/api/v1/reports/{name}", tags=["reports"])
    def one_report(
        name: str, format: str = "html", since: datetime | None = None, until: datetime | None = None
    ) -> Response:
        """A report, written now."""
        if name not in reports.REPORTS or format not in ("html", "md", "json"):
            raise HTTPException(404, f"no report {name!r} in format {format!r}")
        text = reports.render(reports.run(service.store, name, since=_naive(since), until=_naive(until)), format)
        kind = {"html": "text/html", "md": "text/markdown", "json": "application/json"}[format]
        return Response(text, media_type=kind)

    return app


def _naive(moment: datetime | None) -> datetime | None:
    return moment.astimezone(UTC).replace(tzinfo=None) if moment is not None and moment.tzinfo else moment


def _bind(config: Config) -> socket.socket:
    host, port = config.address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise CommandError(
            f"{config.listen}: cannot listen: {error.strerror}; use --listen HOST:PORT with a free port"
        ) from error
    listener.listen(128)
    return listener


def serve(config: Config, first_page: str = "/") -> None:
    """Runs until stopped. Raises ``CommandError`` if the store is held or the address is taken."""
    listener = _bind(config)
    host, port = listener.getsockname()[:2]
    shown = f"http://{'localhost' if host in ('127.0.0.1', '::1', '0.0.0.0', '::') else host}:{port}"
    store = open_for_writing(config.data)
    note = config.data / SERVICE_FILE
    try:
        service = Service(config, store)
        service.start()
        note.write_text(json.dumps({"pid": os.getpid(), "address": shown}), encoding="utf-8")
        server = uvicorn.Server(uvicorn.Config(build_app(service), log_level="warning", access_log=False))
        threading.Thread(target=_announce, args=(server, shown + first_page), daemon=True).start()
        server.run(sockets=[listener])
        service.stop()
    finally:
        note.unlink(missing_ok=True)
        store.close()


def _announce(server: uvicorn.Server, address: str) -> None:
    """Prints the address once it answers."""
    import time

    while not server.started and not server.should_exit:
        time.sleep(0.02)
    if server.started:
        print(f"Faultline is at {address}  (Ctrl-C ends it)")
        sys.stdout.flush()
