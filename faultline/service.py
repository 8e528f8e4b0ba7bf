"""The service: one process that holds the store, accepts batches and hooks, correlates, serves pages, writes
reports."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import structlog
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED, JobExecutionEvent
from apscheduler.executors.pool import ThreadPoolExecutor as SchedulerThreads
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger
from fastapi import Query, Response
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from collector.agent.artifacts import Places
from collector.hook_spool import HookSpool
from collector.identity.identity import Identity
from collector.inventory import by_host, utc_now
from collector.job_output import JobOutput
from collector.pipeline import Pipeline
from collector.priority import lower_priority
from collector.spool import SpoolBroken, SpoolFull
from correlator.incidents.stored import result
from correlator.live.ticker import Ticker
from faultline import admin_comments, backup_route, controller_addresses, early_rounds, upkeep
from faultline.admin_comments import AdminComments, Slurm
from faultline.clock_watch import ClockWatch
from faultline.cluster_doubts import two_names
from faultline.config import Config, ScheduledReport
from faultline.controller_addresses import ControllerAddresses
from faultline.disputes import Disputes
from faultline.drains import acting
from faultline.drains.acting import DrainAdvising
from faultline.drains.slurm_nodes import Scontrol
from faultline.early_rounds import EarlyRounds
from faultline.fitness_metrics import FitnessMetrics
from faultline.node_gate import GRANTS_FILE, Grants, NodeGate
from faultline.notify_targets import dispatcher_of
from faultline.pacing import Pacing
from faultline.receiving import Receiving
from faultline.shrink_rounds import Shrinking
from parsers import extensions
from parsers.watched import WatchedCatalogue
from store.door import Door
from store.errors import StoreError
from store.files import remove_left
from store.line_order import SEGMENT_ROWS
from web.access.audit import QUIET_S, Audit
from web.access.authentication import Authentication
from web.access.own import OwnReader
from web.api import Read
from web.timerange import parse_time

log = structlog.get_logger()

#: The audit log, in the data folder.
AUDIT_FILE = "audit.ndjson"
#: How often hooks and new rows are checked; a job's epilog is on its page a moment later.
TICK_SECONDS = 1.0
#: How often notifications are sent.
NOTIFY_SECONDS = 5.0
#: How often the store returns memory that it does not need at the moment.
RELEASE_SECONDS = 10.0
#: While more unpacked bytes than this wait in the spool, deferrable work is deferred.
BEHIND_BYTES = 32 * 1024 * 1024
#: The first correlation over all stored data may take minutes. Pages report it once it has taken this many seconds.
LOOK_S = 2.0
#: How long a running correlation may continue when the service is stopped, in seconds.
PATIENCE_S = 10.0
#: When nothing has been stored for this many seconds, a log of the store with at least so many bytes is written into
#: its file: nobody waits, and it takes twice the space until then.
QUIET_STORE_S, QUIET_LOG_BYTES = 60.0, 4 * 1024 * 1024
#: When nothing has been stored for this many seconds, lines that fill no segment are put into a smaller one if there are at
#: least so many: every text search reads those that are in none. A number so small that searching them takes milliseconds
#: stays, so that segments do not become many.
QUIET_LINES_S, QUIET_LINES = 10.0, SEGMENT_ROWS // 8
#: How often the same failure of a round is logged.
LOG_AGAIN_S = 60.0


class Service(Collector):
    """The running parts. ``tick()`` is one round of accepting hooks and correlating; tests call it directly."""

    def __init__(
        self,
        config: Config,
        store: Door,
        receiving: Receiving | None = None,
        authentication: Authentication | None = None,
    ) -> None:
        self.config = config
        self.authentication = authentication
        self.store = store
        self.receiving = receiving
        places = Places(state_save=config.hooks.state_save, slurmd_spool=config.hooks.slurmd_spool)
        #: Decides which cluster and node rows belong to, for the pipeline and the hook spool.
        self.identity = Identity(store, config.cluster)
        self.spool = HookSpool(
            config.hooks.spool or config.data / "hooks", places, config.cluster, receiving.keep if receiving else None,
            identity=self.identity,
        )  # fmt: skip
        self._output: JobOutput | None = None
        threads = SchedulerThreads(10, pool_kwargs={"initializer": lower_priority})
        self.scheduler = BackgroundScheduler(timezone="UTC", executors={"default": threads})
        self.ticker = Ticker(store, settings=config.site, edge_paths=config.edges)
        self._pacing = Pacing()
        #: How many lines had been stored at the last round, and since when.
        self._unchanged = (0, time.monotonic())
        self._shrinking = Shrinking(store, self._stored_lines, lambda: self._is_busy() or self._early.is_working)
        #: When the first correlation over all stored data began; None before ``start``, and once it is done.
        self._looking_since: datetime | None = None
        #: The failure of the last round, and when it was logged.
        self._tick_fault: str | None = None
        self._tick_logged_at = 0.0
        #: Scheduler jobs whose last run failed, with the failure and when it was logged.
        self._faults: dict[str, str] = {}
        self._faults_logged: dict[str, float] = {}
        self.scheduler.add_listener(self._job_ended, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
        self.patterns = WatchedCatalogue(config.patterns)
        self.clock = ClockWatch(store)
        self.disputes = Disputes(store)
        self.dispatcher = dispatcher_of(config, store, self._silent_sources)
        #: Set at the end: programs that jobs of the scheduler wait for are killed then.
        self._ended = threading.Event()
        self._early = EarlyRounds(
            store, config.store, self._stored_lines, self._is_behind, self._shrinking.again, self._ended
        )
        self.comments = AdminComments(
            store,
            config.admin_comment,
            config.cluster,
            Slurm(
                config.admin_comment.sacct,
                config.admin_comment.sacctmgr,
                partial(admin_comments.run_program, ended=self._ended),
            ),
        )
        advisor, ended = config.drain_advisor, self._ended
        control = Scontrol(advisor.scontrol, ended=ended)
        self.drains = DrainAdvising(store, advisor, config.cluster, control, ended=ended)

    def start(self) -> None:
        """Starts accepting and answering; the first ``tick`` correlates stored data in parallel."""
        if self.receiving is not None:
            self.receiving.attach(self.store, self.identity)
        self.identity.unite()
        for problem in two_names(self.store, self.config.cluster):
            log.warning(problem)
        for problem in self.store.lost:
            log.error("lines may be missing in the store", reason=problem)
        self._looking_since = datetime.now(UTC).replace(tzinfo=None)
        for folder in {report.folder for report in self.config.reports}:
            remove_left(folder.glob(".*.draft"), "reports")
        self.scheduler.add_job(
            self._tick_or_log,
            "interval",
            id="concluding",
            seconds=TICK_SECONDS,
            max_instances=1,
            coalesce=True,
            next_run_time=datetime.now(UTC),
        )
        if self.dispatcher.targets:
            self.scheduler.add_job(
                self.dispatcher.round,
                "interval",
                id="notifying",
                seconds=NOTIFY_SECONDS,
                max_instances=1,
                coalesce=True,
                misfire_grace_time=None,
            )
        if self.config.admin_comment.enabled:
            self.scheduler.add_job(self.comments.round, "interval", seconds=admin_comments.EVERY_S, max_instances=1, coalesce=True,
                                   id="writing AdminComments")  # fmt: skip
        if self.config.drain_advisor.acting:
            self.scheduler.add_job(self.drains.round, "interval", seconds=acting.EVERY_S, max_instances=1, coalesce=True,
                                   id="draining nodes")  # fmt: skip
        for number, report in enumerate(self.config.reports, 1):
            self.scheduler.add_job(self.write_report, CronTrigger.from_crontab(report.cron, timezone="UTC"), [report],
                                   id=f"report {number}, {report.name}")  # fmt: skip
        self.scheduler.add_job(
            upkeep.job(self.store, self.config.store, self._is_behind, self.clock, self._shrinking.again), "interval", seconds=upkeep.EVERY_S, max_instances=1, id="closing days",
            coalesce=True, next_run_time=datetime.now(UTC) + timedelta(seconds=upkeep.FIRST_S),
        )  # fmt: skip
        self.scheduler.add_job(self._early.look, "interval", seconds=early_rounds.EVERY_S, max_instances=1, coalesce=True,
                               id="moving settled lines")  # fmt: skip
        self.scheduler.add_job(ControllerAddresses(self.store).look, "interval", seconds=controller_addresses.EVERY_S,
                               max_instances=1, coalesce=True, id="looking up controllers", next_run_time=datetime.now(UTC))  # fmt: skip
        self.scheduler.add_job(self.store.release_memory, "interval", seconds=RELEASE_SECONDS, max_instances=1, coalesce=True,
                               id="releasing memory")  # fmt: skip
        self.scheduler.start()

    def stop(self) -> bool:
        """Ends the parts; False if a correlation is still running after ``PATIENCE_S``: then nothing may be closed."""
        self._ended.set()
        ending = threading.Thread(target=self._stop_scheduler, daemon=True)
        ending.start()
        ending.join(PATIENCE_S)
        if self.receiving is not None:
            self.receiving.close()
        return not ending.is_alive()

    def _stop_scheduler(self) -> None:
        with suppress(Exception):
            self.scheduler.shutdown(wait=True)

    def tick(self) -> None:
        """Takes waiting hook files; correlates again if anything was stored since the last time."""
        if not self._pacing.is_time(behind=self._is_behind(), busy=self._is_busy(), stored=self._stored_lines()):
            return
        begun = time.monotonic()
        self._watch_patterns()
        taken = self.spool.take(self.store)
        for warning in self.spool.warnings:
            log.warning("hook spool", file=warning)
        self.spool.warnings.clear()
        self._deliver_output()
        self._settle(bool(taken))
        report = self.ticker.tick()
        self._looking_since = None
        self.disputes.look()
        self._seal()
        self._pacing.done(
            time.monotonic() - begun, report.lines, full=report.full, behind=self._is_behind(), busy=self._is_busy(),
            stored=self._stored_lines(),
        )  # fmt: skip

    def _tick_or_log(self) -> None:
        """A scheduled round: a failure is logged, at most once a minute, and retried a second later."""
        try:
            self.tick()
        except Exception as error:
            now = time.monotonic()
            if self._tick_fault is None or now - self._tick_logged_at >= LOG_AGAIN_S:
                self._tick_logged_at = now
                log.error(
                    "nothing is concluded at the moment", error=f"{type(error).__name__}: {error}", exc_info=error
                )
            self._tick_fault = f"{type(error).__name__}: {error}"
        else:
            self._tick_fault = None

    def _job_ended(self, event: JobExecutionEvent) -> None:
        """Logs a failed job, at most once a minute, until it succeeds again; it runs again when it is due."""
        name = str(event.job_id)  # querying the scheduler would wait for its lock, which it holds while it stops
        error = getattr(event, "exception", None)
        if error is None:
            if self._faults.pop(name, None) is not None:
                log.info("a job goes through again", job=name)
            return
        reason, now = f"{type(error).__name__}: {error}".splitlines()[0], time.monotonic()
        if name not in self._faults or now - self._faults_logged.get(name, 0.0) >= LOG_AGAIN_S:
            self._faults_logged[name] = now
            log.error("a job failed; it is run again when it is due", job=name, error=reason, exc_info=error)
        self._faults[name] = f"the job {name!r} failed: {reason}"

    @property
    def ended(self) -> str | None:
        """Which part of the scheduler needs a restart; None while its thread lives, or is not supposed to run."""
        thread = getattr(self.scheduler, "_thread", None)
        is_dead = self.scheduler.running and thread is not None and not thread.is_alive()
        return "the thread that starts rounds of concluding has ended" if is_dead else None

    def troubles(self) -> list[str]:
        """What needs attention while the service is ready, in words."""
        missing = self._pipeline.missing if self._pipeline is not None else None
        found = [
            self.clock.trouble,
            missing,
            *self.store.lost,
            self.spool.trouble,
            self.comments.trouble,
            self.drains.trouble,
            self.receiving.enroller.trouble
            if self.receiving is not None and self.receiving.enroller is not None
            else None,
            *list(self._faults.values()),
        ]
        return [text for text in found if text]

    def looking_since(self) -> datetime | None:
        """When the first correlation over all stored data began (naive UTC), while it is running and has taken longer
        than ``LOOK_S``."""
        since = self._looking_since
        now = datetime.now(UTC).replace(tzinfo=None)
        return since if since is not None and (now - since).total_seconds() > LOOK_S else None

    def collect(self) -> Iterator[Metric]:
        """Prometheus metrics of correlation and of the store."""
        missing = self._pipeline is not None and self._pipeline.missing
        for name, text, value in (
            ("first_look_pending", "1 until all that is stored was looked at once since the start: conclusions are those of before.",
             self._looking_since is not None),
            ("retention_held", "1 while nothing is dropped for its age, because the clock jumped.", self.clock.trouble is not None),
            ("lines_may_be_missing", "1 if a damaged log of the store cost lines, or may have.", bool(self.store.lost or missing)),
            ("jobs_failing", "Jobs beside concluding whose last run failed.", len(self._faults)),
            ("concluding_ok", "1 unless the last round of concluding failed.", self._tick_fault is None),
        ):  # fmt: skip
            yield GaugeMetricFamily(f"faultline_{name}", text, value)
        yield from self.comments.collect()
        yield from self.drains.collect()

    def _deliver_output(self) -> None:
        """Delivers job output fetched by hooks, and reports of their losses, the way all lines arrive."""
        receiving = self.receiving
        if receiving is None or receiving.pipeline is None:
            return
        if self._output is None:
            ledger = receiving.pipeline.ledger
            self._output = JobOutput(self.store, receiving.keep, lambda: ledger.keys)
        try:
            self._output.round()
            self.spool.report_lost()
        except (SpoolFull, SpoolBroken, OSError) as error:
            log.warning("what hooks brought or lost waits until the spool takes it", error=str(error))

    def _watch_patterns(self) -> None:
        """Logs the result of changed pattern files; parsing processes follow them by themselves."""
        known = self.patterns.problems
        if self.patterns.refresh():
            log.info("patterns reloaded", patterns=len(self.patterns.catalogue.entries))
        elif self.patterns.problems != known:
            for problem in self.patterns.problems:
                log.warning("patterns not reloaded, the ones before stay in use", problem=str(problem))

    @property
    def _pipeline(self) -> Pipeline | None:
        return self.receiving.pipeline if self.receiving is not None else None

    def _is_busy(self) -> bool:
        return self._is_behind() or (self._pipeline is not None and self._pipeline.is_busy)

    def _stored_lines(self) -> int:
        return self._pipeline.counts.lines if self._pipeline is not None else 0

    def _is_behind(self) -> bool:
        return self.receiving is not None and self.receiving.spool.waiting_unpacked > BEHIND_BYTES

    def _settle(self, taken: bool) -> None:
        """Applies late knowledge to rows that waited for it."""
        if taken or self.identity.is_unsettled:
            self.identity.settle()

    def _seal(self) -> None:
        """Closes segments when enough lines wait; the lines were acknowledged long before, so after a failure they only
        wait longer."""
        try:
            sealed = self.store.seal(least=QUIET_LINES if self._quiet_s() >= QUIET_LINES_S else SEGMENT_ROWS)
            if not self._is_behind():
                self.store.add_filters()
            self._write_log_when_quiet()
            self._shrinking.look()
        except StoreError as error:
            log.warning("segments not closed", error=str(error).splitlines()[0])
            return
        if sealed.lines:
            log.info("segments closed", lines=sealed.lines, segments=sealed.segments)

    def _quiet_s(self) -> float:
        """Seconds for which no line was stored, or since the log was written into the store."""
        lines, now = self._stored_lines(), time.monotonic()
        if lines != self._unchanged[0]:
            self._unchanged = lines, now
        return now - self._unchanged[1]

    def _write_log_when_quiet(self) -> None:
        if self._quiet_s() >= QUIET_STORE_S:
            self._unchanged = self._unchanged[0], time.monotonic()
            self.store.checkpoint(QUIET_LOG_BYTES)

    def _silent_sources(self) -> list[tuple[str, str]]:
        inventory = self.receiving.inventory if self.receiving is not None else None
        return by_host(inventory.alerts(utc_now())) if inventory is not None else []

    def write_report(self, report: ScheduledReport, now: datetime | None = None) -> Path:
        """Writes one scheduled report under a name with its date; never leaves a partial file."""
        from queries import reports

        until = now or datetime.now(UTC).replace(tzinfo=None)
        text = reports.render(
            reports.run(self.store, report.name, since=until - timedelta(days=report.days), until=until), report.format
        )
        report.folder.mkdir(parents=True, exist_ok=True)
        path = report.folder / f"{report.name}-{until:%Y-%m-%dT%H%M}.{report.format}"
        draft = path.with_name(f".{path.name}.draft")
        draft.write_text(text, encoding="utf-8")
        draft.chmod(int(report.mode, 8))
        draft.replace(path)
        log.info("report written", path=str(path))
        return path


def correlating_of(config: Config) -> dict[str, Any]:
    """What the pages need to conclude as the service does: what the site states, and its edge files."""
    return {"settings": config.site, "edges": config.edges}


def _measured(service: Service, app: Any) -> Iterator[Collector]:
    """The parts with metrics of their own."""
    yield from (service, service.disputes, FitnessMetrics(app.state.fitness), app.state.node_gate)
    if service.receiving is not None:
        yield service.receiving
        if service.receiving.enroller is not None:
            yield service.receiving.enroller
    if service.dispatcher.targets:
        yield service.dispatcher


def build_app(service: Service) -> Any:
    """The web application over this service's store, with the routes that need more than the store."""
    from queries import reports
    from web.app import create_app
    from web.problems import ProblemError

    listing = [
        {"name": r.name, "title": r.title, "description": r.description, "href": f"/api/v1/reports/{r.name}"}
        for r in reports.all_reports().values()
    ]
    settings = {"reports": listing, "cluster": service.config.cluster, "user_header": service.config.user_header,
                "data": str(service.config.data.absolute()), "dashboards": service.config.dashboards, "queries": service.config.queries, "correlating": correlating_of(service.config)}  # fmt: skip
    audit = Audit(service.config.data / AUDIT_FILE)
    app = create_app(service.store, settings=settings, authentication=service.authentication, audit=audit)
    service.scheduler.add_job(audit.settle, "interval", seconds=QUIET_S, coalesce=True, id="audit")
    if service.receiving is not None and (enroller := service.receiving.enroller) is not None:
        enroller.audit = audit
        service.scheduler.add_job(enroller.purge, "interval", hours=1, coalesce=True, id="enrolment")

    app.state.receiving = service.receiving
    app.state.looking_since, app.state.is_behind = service.looking_since, service._is_behind
    app.state.troubles = service.troubles
    app.state.node_gate = NodeGate(
        app.state.reader, app.state.fitness, Grants(service.config.gate, service.config.data / GRANTS_FILE)
    )
    for part in _measured(service, app):
        app.state.metrics.add(part)
    backup_route.add(app, service.store, lambda: service.receiving.pipeline if service.receiving else None)

    @app.get("/api/v1/result", tags=["incidents"])
    def whole_result(read: Read) -> dict[str, Any]:
        """corr-result/1: every incident and verdict that the caller may see."""
        whole = result(service.store)
        return read.result(whole) if isinstance(read, OwnReader) else whole

    @app.get("/api/v1/reports/{name}", tags=["reports"])
    def one_report(
        name: str, format: str = "html", since: Annotated[str | None, Query(description="RFC 3339, now or now-7d")] = None,
        until: Annotated[str | None, Query(description="as since")] = None,
    ) -> Response:  # fmt: skip
        """A report, generated now."""
        low, high = parse_time("since", since), parse_time("until", until)
        try:
            text = reports.render(reports.run(service.store, name, since=low, until=high), format)
        except reports.ReportError as error:
            status = 404 if name not in reports.all_reports() else 400
            raise ProblemError(status, str(error), do="See /reports for what there is.") from error
        except reports.ReportFailed as error:
            extensions.warn_once(str(error), error)
            raise ProblemError(500, str(error), do="The service's own log has the details.") from error
        kind = {"html": "text/html", "md": "text/markdown", "json": "application/json"}[format]
        # A report is one file with its own style and no script: the pages' policy would block its style.
        policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
        return Response(text, media_type=kind, headers={"Content-Security-Policy": policy})

    return app
