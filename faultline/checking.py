"""``faultline check``: validates configuration and data. Every problem is reported with file, entry and reason, and so
is everything at the site that is open, with the way to close it; openness may be intended and is not a problem."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collector.hook_spool import spool_problem
from collector.identity.cluster_aliases import names
from faultline import installed
from faultline.backends import open_for_reading
from faultline.cluster_doubts import two_names
from faultline.config import Config, load
from faultline.failure import CommandError
from faultline.forgeable import counts, forgeable
from parsers import extensions
from parsers.pattern import BUILT_IN
from store import is_store
from store.disowned import FACT as DISOWNED
from store.disowned import senders as false_senders
from store.questions import job_rows, kernel_lines, sources
from store.run_names import disputed

if TYPE_CHECKING:
    from parsers.patterns import Catalogue
    from store.door import Asks


def check_all(config: Path | None, data: Path | None, tried: Sequence[Path] = (), *, every_test: bool = False) -> int:
    """Prints a line per part; exit 1 for a problem, 2 if a part could not be checked. ``tried``: further edge files, in
    addition to those of the configuration; ``every_test``: also those that only another release would change."""
    from parsers import patterns
    from parsers.sources import counted, unwritten

    wrong: list[str] = []
    settings = load(config)
    print(f"configuration  {config or 'defaults'}")
    _extensions()
    catalogue = patterns.load(settings.patterns)
    problems = catalogue.check()
    wrong += [f"catalogue: {p}" for p in problems]
    odd = unwritten(catalogue.entries)
    print(f"catalogue      {len(catalogue.entries)} event patterns, {len(problems)} wrong{counted(odd)}")
    wrong += _edges([*settings.edges, *_present(tried)], catalogue, every_test)
    wrong += _reports(settings.reports)
    wrong += _dashboards(settings)
    wrong += extensions.problems()  # includes those of patterns and edges, which were tried
    barred, opened = _ways_in(settings, config)
    wrong += barred
    opened += odd
    wrong += [f"hooks: {why}" for why in [spool_problem(settings.hooks.spool or settings.data / "hooks")] if why]
    if data is not None or is_store(settings.data):
        try:
            with open_for_reading(data or settings.data) as store:
                health = store.health()
                bad = store.ask(sources.WITHOUT_TEXT)[0]["n"]
                wrong += health.damaged
                wrong += health.lost
                wrong += two_names(store, settings.cluster)
                wrong += disputed(store)
                wrong += contradicted(store)
                opened += unproven_kernels(store) if settings.users_can_write_syslog else []
                if written := counts(store):
                    totals = (f"{name} {sum(of_sources.values()):,}" for name, of_sources in written.items())
                    print(f"authority      lines with events: {', '.join(totals)}")
                opened += forgeable(written, settings.users_can_write_syslog)
                opened += false_senders(store.fact(DISOWNED))
                for name in names(store, settings.cluster).same:
                    print(
                        f"cluster        accounting calls {settings.cluster!r} {name!r}; the service takes that for the same one"
                    )
            print(
                f"store          {health.info['lines']:,} lines, {health.info['bytes']:,} bytes in {health.info['folder']}"
            )
            if bad:
                wrong.append(f"store {health.info['folder']}: {bad} rows without their raw line")
        except CommandError as error:
            if data is not None:
                raise
            print(f"store          {error}")
    for text in opened:
        print(f"OPEN   {text}")
    for text in wrong:
        print(f"WRONG  {text}")
    print("something is wrong" if wrong else "all is well")
    return 1 if wrong else 0


#: Most jobs whose records are compared, the newest first.
COMPARED = 2000


def contradicted(store: Asks) -> list[str]:
    """Runs that sources of accounting record differently, in words: one line for each thing that the same sources tell
    differently, with one example."""
    from correlator.gather.contradictions import RECORDS, contradictions
    from correlator.gather.grouping import grouped
    from correlator.gather.runs_fast import NOTHING
    from parsers.job_states import OPEN

    by_job: dict[tuple[str | None, int], list[dict[str, Any]]] = {}
    for row in store.ask(job_rows.differing_records(sorted(RECORDS), sorted(OPEN), COMPARED)):
        known = {name: value for name, value in row.items() if value not in NOTHING and name != "cluster"}
        by_job.setdefault((row["cluster"], row["job_id"]), []).append(known)
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (_, job), rows in sorted(by_job.items(), key=lambda item: (item[0][0] or "", -item[0][1])):
        for group in grouped(rows):
            for one in contradictions(group):
                found.setdefault((one.about, one.sources), []).append(f"job {job} ({one})")
    return [
        f"accounting: {' and '.join(sources)} tell the {about} of {len(jobs)} run{'s' if len(jobs) > 1 else ''} differently, such as {jobs[0]}"
        for (about, sources), jobs in sorted(found.items())
    ]


#: Most hosts listed by name.
NAMED = 5


def unproven_kernels(store: Asks) -> list[str]:
    """Kernel lines that other processes of their hosts could have written, since the kernel ring was not collected: one
    line of text for hosts whose logs record no facility, one for the others."""
    found = store.ask(kernel_lines.without_ring())
    bare, by_facility = ([row["host"] for row in found if row["facility"] is known] for known in (False, True))
    reported = []
    if bare:
        reported.append(
            f"kernel lines of {_some(bare)}: collected only from logs that keep no facility, where `logger -t kernel` of any user looks "
            "the same, so they count for nothing while a job is there, unless others confirm them: collect the kernel's ring (the agent's kmsg) or the journal"
        )
    if by_facility:
        reported.append(
            f"kernel lines of {_some(by_facility)}: known by facility kern only, which any process that writes to /dev/log by itself can "
            "claim, so they count for nothing while a job is there, unless others confirm them: collect the kernel's ring (the agent's kmsg) or the journal"
        )
    return reported


def _some(hosts: Sequence[str]) -> str:
    return ", ".join(hosts[:NAMED]) + (f" and {len(hosts) - NAMED} more" if len(hosts) > NAMED else "")


def _extensions() -> None:
    """Loads and counts what installed packages provide; their problems are reported once everything was tried."""
    installed.load_all()
    for line in installed.counted():
        print(f"extensions     {line}")


def _ways_in(settings: Config, file: Path | None) -> tuple[list[str], list[str]]:
    """Whether the files for HTTPS and for sign-in are usable, what would be refused, and what is open."""
    from faultline import exposure, tls
    from faultline.authentication import people_of, slurm_of

    wrong, users = [], None
    try:
        if tls.options(settings.tls):
            print(f"https          {settings.tls.certificate if settings.tls else ''}")
        if settings.access is not None:
            users = people_of(settings.access)
            print(f"access         {len(users.people)} passwords, {len(users.tokens)} tokens")
        if (slurm := slurm_of(settings)) is not None:
            print(f"slurm users    {', '.join(slurm.schemes)}")
    except CommandError as error:
        wrong.append(str(error))
    try:
        refused, opened = exposure.wrong_and_open(settings, file, users)
    except CommandError as error:  # an unreadable file of tokens
        return [*wrong, str(error)], []
    return [*wrong, *refused], opened


def _edges(paths: Sequence[Path], catalogue: Catalogue, every_test: bool) -> list[str]:
    """Reads the edges and runs the tests that they contain; those that are sure to pass, since the release's own passed them and nothing
    of this site is part of them, only if asked."""
    from correlator.edges import load as edges
    from correlator.selftest import run

    found, faults = edges.rules(paths)
    own = bool(extensions.known()) or any(Path(entry.file).parent != BUILT_IN for entry in catalogue.entries)
    count, left, failed = run.check(paths, catalogue, as_released=not own and not every_test)
    rates = f", {len(found.innocent)} base rates" if found.innocent else ""
    print(
        f"edges          {len(found.edges)} causal edges{rates}, {len(faults)} wrong; {count} tests, {len(failed)} failed"
    )
    if left:
        print(
            f"edges          {left} tests of the release were not run: no pattern or package of this site is part of them (--every-test)"
        )
    for line in edges.replaced(paths):
        print(f"edges          {line}")
    return [str(p) for p in [*faults, *failed]]


def _present(paths: Sequence[Path]) -> Sequence[Path]:
    missing = [str(p) for p in paths if not p.is_file()]
    if missing:
        raise CommandError(f"{', '.join(missing)}: no such edge file")
    return paths


def _reports(scheduled: object) -> list[str]:
    from queries import reports

    names = [r.name for r in scheduled]  # type: ignore[attr-defined]
    return [
        f"configuration: reports: {n!r} is not a report; known are {', '.join(sorted(reports.all_reports()))}"
        for n in names
        if n not in reports.all_reports()
    ]


def _dashboards(settings: Config) -> list[str]:
    """Reads saved queries and dashboards, and compiles the queries of all panels and of a site's files."""
    from queries import dashboards, kql, saved

    library, problems = saved.library(settings.queries)
    wrong = [str(problem) for problem in problems]
    wrong += map(str, saved.faults(library, kql.validate))
    own = len(library) - len(saved.names())
    print(f"queries        {len(library)} saved queries, {own} of this site, {len(wrong)} wrong")
    found, faults = dashboards.all_dashboards(settings.dashboards, library)
    faults += dashboards.faults(found, kql.validate)
    print(f"dashboards     {len(found)} dashboards, {sum(len(one.panels) for one in found.values())} panels, {len(faults)} wrong")  # fmt: skip
    return [*wrong, *map(str, faults)]


def back_test(
    config: Path | None, data: Path | None, edges: list[Path], since: datetime | None, until: datetime | None
) -> int:
    """``check --replay``: compares today's edges with the same plus ``edges``, over the stored history. Writes nothing.

    Exit 0 if both give the same, 1 if anything differs.
    """
    from correlator.learning.backtest import lines, replay

    settings = load(config)
    _present(edges)
    if not edges:
        raise CommandError("--replay compares today's edges with others; name them with --edges FILE")
    with open_for_reading(data or settings.data) as store:
        try:
            found = replay(store, edges, edge_paths=settings.edges, settings=settings.site, since=since, until=until)
        except ValueError as error:
            raise CommandError(f"the edges cannot be used: {error}") from error
    for line in lines(found):
        print(line)
    return 1 if found else 0


def count_answers(config: Path | None, data: Path | None, write: Path | None) -> int:
    """``check --answers``: what operators' answers imply for the edges' priors and for base rates. Changes no verdict;
    ``write``: a file of edges with the resulting priors and rates, for ``--replay --edges`` and then the site's
    configuration."""
    from correlator.edges import load as edges
    from correlator.engine import clusters_of, conclude_cluster
    from correlator.learning import base_rates, priors
    from correlator.learning.feedback import answers

    settings = load(config)
    rules, faults = edges.rules(settings.edges)
    if faults:
        raise CommandError(f"the edges cannot be used: {'; '.join(map(str, faults))}")
    if write is not None and write.exists():
        raise CommandError(f"{write}: exists already; name another file")
    tables = {name: entry.table for name, entry in edges.entries(settings.edges).items()}
    begun = {name: float(table["judged"]) for name, table in tables.items() if "judged" in table}
    with open_for_reading(data or settings.data) as store:
        lessons = priors.learned(store, rules.edges, begun)
        rates = []
        if lessons.edges:  # facts are not stored: they are recomputed, as for --replay
            found = [conclude_cluster(store, c, rules, settings.site) for c in clusters_of(store)]
            rates = base_rates.innocence(found, answers(store), rules.innocent)
    for line in [*priors.lines(lessons), *base_rates.lines(rates)]:
        print(line)
    if write is not None and lessons.edges:
        tests = {name: table["tests"] for name, table in tables.items() if table.get("tests")}
        write.write_text(priors.as_file(lessons.edges, tests, rates), encoding="utf-8")
        print(f"wrote {write}; see what it changes: faultline check --replay --edges {write}")
    return 0
