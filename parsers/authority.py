"""Decides who can have written a line, and what such a writer may report: ``speakers.toml`` lists it by families of
events.

A header is text like any other. A job's output comes from its user, whatever it looks like: it reports on that job, and
names no other host, program or job. A program's name in syslog is whatever its writer chose: the kernel has no process
ID and only the facility ``kern``, which no program gets; the facility ``user`` is the default. A line that claims more
than its writer may report keeps its text, and a tag records the claim (``claims:gpu.xid``): no such line is an event.

What only several lines together show (which host is a controller, which nodes a job ran on, when) belongs to the
correlator: ``correlator/gather/standing.py``. What only a receiver knows (how a line arrived) belongs to
``collector/decoding.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import polars as pl

from parsers.formats.base import JOB_SOURCES, SLURM, nothing, one_of
from parsers.record import Origin
from parsers.speakers import CLAIMS, may_speak, of_system
from parsers.tag_lists import one_more

if TYPE_CHECKING:
    from parsers.line_events import Events
    from parsers.pattern import Pattern

#: Framings that only root can read or write: a program's header inside them proves nothing.
_RING = ("kmsg", "dmesg")
#: The same, plus the files that Kubernetes daemons write themselves.
_OWN_FILES = (*_RING, "klog")
#: Files that a syslog daemon writes (the defaults of Debian's and Red Hat's rsyslog and syslog-ng).
_OF_SYSLOG_DAEMON = re.compile(
    r"(?:^|/)(?:syslog|messages|secure|(?:auth|daemon|kern|user|debug)(?:\.log)?)(?:[.-][^/]*)?$"
)
#: Framings of files that only their daemon writes.
OF_DAEMONS = ("slurm", "opensm", "ufm", "ibdiagnet", "fabricmanager", "nhc", "storage", "stamped", "klog")
#: Programs that root runs on a node, whose lines may have no header.
OF_ROOT = ("prolog", "epilog", "healthagent", "jetpack", "jetpackd")
_MACHINES = ("kernel", "switch", "bmc", *OF_ROOT, *SLURM)
#: The framing of a line in a person's file that would be a machine's word elsewhere.
OF_PERSON = "person"
#: Their daemons run under the site's account for Slurm, whose number may be a person's.
_UNDER_ANY_ACCOUNT = ("slurmctld", "slurmdbd", "slurmrestd")
#: Header columns that a line of a job cannot have: they describe a machine.
_OF_MACHINES = ("facility", "uptime_s", "step_tag", "received", "sender_time")


def beside(entry: Pattern, claimed: Pattern) -> Pattern:
    """``entry`` for a line that also claims something else."""
    return replace(entry, tags=(*entry.tags, CLAIMS + claimed.event))


def standing(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """``frame`` (HEADER's columns) without anything that its writers cannot know or be."""
    if origin.source in JOB_SOURCES:
        return _of_job(frame, origin)
    if origin.of_person:
        frame = _of_a_person(frame)
    elif origin.path is not None and _OF_SYSLOG_DAEMON.search(origin.path):
        frame = _without_inner_lines(frame)
    source = frame["source"]
    odd = [*_odd_kernel(frame, source), *_odd_users(frame, source)]
    if not odd:
        return frame
    at = pl.concat(odd)
    return frame.with_columns(source.scatter(at, "syslog"), frame["uptime_s"].scatter(at, None))


def _without_inner_lines(frame: pl.DataFrame) -> pl.DataFrame:
    """Lines of a syslog daemon's file. It writes a header before each message, and syslog-ng a message's own line ends as
    they are: a line that begins like the kernel's ring or a daemon's file is the second line of somebody's message."""
    inner = one_of(frame["format"], (*_OWN_FILES, "slurm")).fill_null(False)
    return _in_place(frame, inner, {"source": "syslog", "format": "plain", "facility": "user", "uptime_s": None})


def _of_a_person(frame: pl.DataFrame) -> pl.DataFrame:
    """Lines of a file that belongs to a person: whatever they look like, they are that person's words.

    Slurm's controller daemons may run under any account (``SlurmUser``): which hosts may write as they do, the correlator
    knows."""
    source, form = frame["source"], frame["format"]
    theirs = one_of(form, (*_RING, *OF_DAEMONS, "ip_link", "journald")).fill_null(False) | one_of(
        source, _MACHINES
    ).fill_null(False)
    slurms = one_of(form, ("slurm", "continuation")) & one_of(source, _UNDER_ANY_ACCOUNT)
    changed = {"source": "syslog", "format": OF_PERSON, "facility": "user", "uptime_s": None}
    return _in_place(frame, theirs & ~slurms.fill_null(False), changed)


def _in_place(frame: pl.DataFrame, rows: pl.Series, values: dict[str, str | None]) -> pl.DataFrame:
    if not rows.any():
        return frame
    at = rows.arg_true()
    return frame.with_columns(frame[name].scatter(at, value) for name, value in values.items())


def _odd_kernel(frame: pl.DataFrame, source: pl.Series) -> Iterator[pl.Series]:
    """The rows that name the kernel and have what only programs have. Of whole columns only what Polars does at once is
    asked: nearly no line is odd."""
    kernel = source == "kernel"
    if not kernel.any():
        return
    pids, facilities = frame["pid"].filter(kernel), frame["facility"].filter(kernel)
    odd = (pids > 0) | (facilities != "kern")  # Darwin writes 0
    if not odd.any():
        return
    ring = one_of(frame["format"].filter(kernel), _RING).fill_null(False)
    yield kernel.arg_true().filter(odd & ~ring)


def _odd_users(frame: pl.DataFrame, source: pl.Series) -> Iterator[pl.Series]:
    """The rows of facility ``user`` that name a daemon. The journal shows that a person's process wrote the entry
    (parsers/accounts.py), or the facility is the default."""
    users = frame["facility"] == "user"
    if not users.any():
        return
    sources, formats = source.filter(users), frame["format"].filter(users)
    odd = one_of(sources, SLURM) & (formats != "slurm") | (formats == "journald") & (sources != "syslog")
    if odd.any():
        yield users.arg_true().filter(odd)


def _of_job(frame: pl.DataFrame, origin: Origin) -> pl.DataFrame:
    """Lines of a job's output. A rank may state which of the job's nodes it runs on, as NCCL and Open MPI do; an object
    around a line and a header inside it do not show where it was printed."""
    written = frame["format"] == "job_output"
    return frame.with_columns(
        pl.Series("source", [origin.source], dtype=pl.String).new_from_index(0, len(frame)),
        frame["host"].zip_with(written, nothing("host", pl.String, len(frame))),
        *(nothing(name, frame.schema[name], len(frame)) for name in _OF_MACHINES),
    )


@lru_cache(maxsize=16_384)
def may_report(
    event: str, of_site: bool, source: str | None, unit: str | None, facility: str | None, form: str | None
) -> bool:
    """Whether a line of ``source`` may mean ``event``. ``of_site``: its pattern is a site's, which lists its sources
    itself."""
    if form == "journald" and facility == "user":
        return of_site or may_speak("person", event)
    if of_site or may_speak("user", event) or form in _OWN_FILES:
        return True
    if source == "switch":
        return may_speak("switch", event)
    if facility == "user":
        return False
    # A line without a program is not from logger(1): it comes from a relay, or from a daemon's own file.
    return source != "syslog" or of_system(unit) or (unit is None and facility is None)


def without(events: Events, entries: list[Pattern], claims: list[int]) -> Events:
    """``events`` with these ``entries``, where those numbered in ``claims`` are claims: they refer to no job."""
    place = {line: number for number, line in enumerate(events.lines)}
    jobs, tags = list(events.jobs), dict(events.tags)
    for number in claims:
        line = events.with_event[number]
        jobs[place[line]] = None
        tags[line] = entries[number].tags
    return events._replace(entries=entries, jobs=jobs, tags=tags)


def silenced(rows: pl.DataFrame, mask: pl.Series) -> pl.DataFrame:
    """Parsed ``rows`` (LOGS' columns) with those in ``mask`` turned into claims: for knowledge that comes only after
    parsing."""
    odd = (mask & (rows["event"] != "other").fill_null(False)).arg_true()
    if not len(odd):
        return rows
    claims = CLAIMS + rows["event"][odd]
    return rows.with_columns(
        one_more(rows["tags"], odd, claims), rows["event"].scatter(odd, "other"), rows["job_id"].scatter(odd, None)
    )
