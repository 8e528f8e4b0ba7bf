"""What the report rests on and what it cannot see. A number is worth no more than the logs behind it."""

from __future__ import annotations

from correlator.model.false_lines import FORGED
from queries.reports.model import Column, Figure, Section
from queries.reports.reader import Reader
from queries.reports.wording import worded
from store.questions import causes, ended
from store.questions import coverage as evidence

#: Kinds of evidence: how to find them, and what stays hidden without them.
_WANTED = (
    ("slurmctld's log", "slurmctld", "nodes set DOWN and why Slurm ended a job"),
    ("slurmd's logs", "slurmd", "a slurmd that died, prologs and epilogs"),
    ("kernel lines of nodes", "kernel", "GPU errors, links lost, memory kills, reboots"),
    ("switch logs", "switches", "whether a link was lost at its switch"),
    ("job output", "output", "errors of programs and of NCCL"),
    ("accounting of jobs", "accounting", "jobs that ended, their users and GPUs"),
    ("states of nodes", "states", "how long nodes were out of service"),
    ("metrics", "metrics", "heat, ECC counters and load before a fault"),
    ("table of cables", "cables", "which switch port belongs to which node"),
)


def coverage(reader: Reader) -> Section:
    """Sources, span, and how many verdicts are unknown, doubtful or rest on lines that came late."""
    span = reader.store.info()
    verdicts, doubtful = reader.one(ended.verdicts(reader.period)), reader.one(causes.doubtful(reader.period))
    open_runs, stamps = reader.one(ended.STILL_OPEN)["n"], reader.one(evidence.STAMPS)
    figures = (
        Figure("Lines stored", span["lines"], note="in the whole store"),
        Figure("First line", span["first"], "time"), Figure("Last line", span["last"], "time"),
        Figure("Verdicts", verdicts["n"], note="jobs that ended badly"),
        Figure("Unknown", verdicts["unknown"], note="the logs do not tell why"),
        Figure("With doubts", doubtful["blind"], note="incidents with a gap in what was logged"),
        Figure("Late lines", doubtful["late"], note="incidents whose lines came late"),
    )  # fmt: skip
    notes = [
        f"No {what} in the store: it would tell {hidden}."
        for what, kind, hidden in _WANTED
        if not reader.one(evidence.EVIDENCE[kind])["n"]
    ]
    counts = (
        ("Jobs that ended badly and have no verdict yet (correlate again)", verdicts["missing"]),
        ("Verdicts that name a cause with a confidence below 0.5", verdicts["weak"]),
        ("Jobs that ended badly and count as 0 GPU-hours, having no GPU or none that was logged", verdicts["no_gpus"]),
        ("Runs without a known end (still running, or traces only), which are in no count", open_runs),
        ("Lines that bear only the time they were received", stamps["received"]),
        ("Lines that are stored and searchable but made no event", stamps["other"]),
    )
    notes += [f"{text}: {worded(number, 'count')}." for text, number in counts if number]
    forged = reader.rows(causes.events_of_kinds(reader.period, (FORGED,)))
    notes += [
        f"Lines in the name of {reader.called(row['host'], row['cluster'])} that were shown to be false ({FORGED}): "
        f"{worded(row['events'], 'count')}."
        for row in forged
    ]
    columns = [Column("source", "Source", "name"), Column("lines", "Lines", "count", bar=True), Column("events", "With an event", "count"),
               Column("hosts", "Hosts", "count"), Column("first_seen", "First", "time"), Column("last_seen", "Last", "time")]  # fmt: skip
    doubts = [Column("doubt", "Doubt"), Column("incidents", "Incidents", "count"), Column("ids", "Which", "name")]
    return Section(
        "coverage", "What this report cannot see", "A fault that nobody logged is in no table above. This is what was there to read.", figures,
        (reader.table("Doubts that incidents state", doubts, reader.rows(causes.doubts(reader.period)), empty="No incident states a doubt."),
         reader.table("Sources of the whole store", columns, reader.rows(evidence.SOURCES), empty="No log line is stored."),), notes=tuple(notes),
    )  # fmt: skip
