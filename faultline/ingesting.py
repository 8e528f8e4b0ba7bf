"""``faultline ingest``: loads paths into the store, prints a table of what was read, and returns a truthful exit
code."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from collector.ingest import Ingest, Options, Report
from faultline import terminal
from faultline.backends import open_for_writing
from faultline.clock_watch import ClockWatch
from faultline.config import load
from faultline.defaults import DEFAULT_DATA
from faultline.failure import CommandError
from faultline.parsing import known_zone
from faultline.upkeep import utc_now
from parsers.visible import visible

#: The database's memory limit during loading; queries of the correlator spill to disk beyond it.
LOADING_MEMORY = "500MB"
#: Most skipped files listed by name.
MOST_LEFT = 50


def ingest_paths(paths: list[Path], data: Path | None, config: Path | None, *, cluster: str | None, timezone: str | None,
                 host: str | None, source: str | None) -> int:  # fmt: skip
    from correlator.engine import correlate

    missing = [str(p) for p in paths if not p.exists()]
    if missing:
        raise CommandError(f"{', '.join(missing)}: no such file or folder; nothing was loaded")
    settings = load(config)
    zone = known_zone(timezone or settings.timezone) if timezone or settings.timezone else None
    options = Options(cluster or settings.cluster, zone, host, source)
    # Loading streams data through: more memory would only cache pages that are not read again.
    os.environ.setdefault("FAULTLINE_MEMORY", LOADING_MEMORY)
    with open_for_writing(data or settings.data or DEFAULT_DATA) as store:
        if not store.info()["lines"]:
            ClockWatch(store).begin(utc_now())
        report = _with_progress(Ingest(store, options, patterns=settings.patterns), paths)
        correlate(store, settings=settings.site, edge_paths=settings.edges)
        size = store.info()["lines"]
    _print(report)
    _print_report(report)
    sys.stderr.write(f"{in_store(size)}\n")
    if report.troubled and not report.by_source():
        raise CommandError("nothing could be read")
    return 1 if report.troubled else 0


def in_store(lines: int) -> str:
    """What a store has of the lines that were read: of documents, only the records."""
    return f"{lines:,} log lines in the store; records of jobs, nodes and links lie in tables of their own"


def _print_report(report: Report) -> None:
    """Prints warnings, one line each, with printable file names. Only the first skipped files are listed: a folder full
    of links must not flood the terminal."""
    left = 0
    for file in report.files:
        left += file.status == "left"
        if file.status == "left" and left > MOST_LEFT:
            continue
        for warning in file.warnings:
            if file.status != "skipped" and warning != "empty":
                path = str(file.path)
                named = warning.startswith((f"{path}:", f"{path} line "))  # as warnings about a document are
                text = warning if named else f"{path}: {warning}"
                sys.stderr.write(f"faultline: {visible(text, lines=False)}\n")
    if left > MOST_LEFT:
        sys.stderr.write(f"faultline: {left - MOST_LEFT:,} more files were left alone\n")


def _with_progress(work: Ingest, paths: list[Path]) -> Report:
    if not sys.stderr.isatty():
        return work.run(paths)
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(TextColumn("reading"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"),
                   console=terminal.errors(), transient=True)  # fmt: skip
    with bar:
        task = bar.add_task("", total=None)
        work.on_progress = lambda done, total, path: bar.update(
            task, completed=done, total=total, description=visible(path.name, lines=False)
        )
        return work.run(paths)


def _print(report: Report) -> None:
    rows = [[r["source"], r["files"], r["lines"], r["events"], r["unparsed"]] for r in report.by_source()]
    stored = [f for f in report.files if f.status in ("stored", "partial")]
    rows.append(["total", len(stored), sum(r[2] for r in rows), sum(r[3] for r in rows), sum(r[4] for r in rows)])
    terminal.table(
        ["source", "files", "lines", "events", "unparsed"], rows, right=("files", "lines", "events", "unparsed")
    )
    unchanged = sum(f.status == "unchanged" for f in report.files)
    if unchanged:
        print(f"{unchanged} files unchanged since they were last read: nothing new stored")
