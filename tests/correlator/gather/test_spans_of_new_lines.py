"""What many new lines show of the sources that were collected is what they show one by one."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import polars as pl
import pytest

from correlator.gather.collected import MANY_LINES, joined, spans_in
from parsers.record import TABLES
from store.line_frames import coded

BEGIN = datetime(2026, 3, 1)
KINDS = (
    ("kernel", "kmsg", "kern", "gpu01:/dev/kmsg", "other"),
    ("kernel", "rfc3164", "kern", "hosts/{host}/kern.log", "other"),
    ("kernel", "rfc3164", "user", "hosts/{host}/syslog", "net.link_down"),
    ("slurmd", "rfc3164", "daemon", "hosts/{host}/syslog", "other"),
    ("slurmd", "slurm", None, "{host}:/var/log/slurmd.log", "slurmd.started"),
    ("slurmctld", "slurm", None, "ctl:/var/log/slurmctld.log", "other"),
    ("switch", "rfc3164", "local7", "syslog:10.0.0.7", "switch.reboot"),
    ("syslog", "rfc3164", "cron", "loghost:/var/log/{host}.log", "other"),
    ("stdout", "plain", None, "/home/ann/job-7.out", "gpu.xid"),
    (None, None, None, None, None),
)
TAGS: tuple[list[str], ...] = ([], [], [], ["unparsed"], ["claims:net.link_down"], ["unparsed", "claims:gpu.xid"])


def lines(rows: int, seed: int) -> pl.DataFrame:
    """Lines of several sources and hosts, of which some are claims, events, or have no time."""
    rng = random.Random(seed)
    made = []
    for _ in range(rows):
        source, format, facility, file, event = rng.choice(KINDS)
        host = rng.choice(("gpu01", "gpu02.site", "sw-1", "ctl", None))
        made.append(
            {
                "time": None if rng.random() < 0.05 else BEGIN + timedelta(seconds=rng.randrange(5 * 86_400)),
                "host": host, "source": source, "format": format, "facility": facility,
                "file": file and file.format(host=host), "event": event, "tags": rng.choice(TAGS),
                "entities": rng.choice((None, '{"sender": "10.0.0.9"}')),
            }
        )  # fmt: skip
    return pl.DataFrame(made, schema={name: TABLES["logs"][name] for name in made[0]})


@pytest.mark.parametrize("given", [coded, lambda lines: lines], ids=["coded", "texts"])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_many_lines_show_what_each_of_them_shows(given, seed):
    many = lines(MANY_LINES + 500, seed)
    alone = joined(spans_in(given(many.slice(at, 1))) for at in range(0, many.height, 19))
    some = many.gather_every(19)
    assert spans_in(given(some)) == alone
    by_hundreds = joined(spans_in(given(many.slice(at, 100))) for at in range(0, many.height, 100))
    assert spans_in(given(many)) == by_hundreds
    assert {family for family, _ in by_hundreds} >= {"kernel", "slurmd", "slurmctld", "switch", "named"}


def test_a_claim_among_many_lines_shows_nothing():
    """Lines of the same host, program and file, of which those that claim an event are in no log of their host."""
    rows = lines(MANY_LINES, 1).with_columns(
        pl.lit("gpu01").alias("host"), pl.lit("slurmd").alias("source"), pl.lit("slurm").alias("format"),
        pl.lit("gpu01:/var/log/slurmd.log").alias("file"), pl.lit("other").alias("event"), facility=None,
    )  # fmt: skip
    for tags, shown in ((["claims:net.link_down"], False), (["unparsed"], True)):
        given = coded(rows.with_columns(pl.Series("tags", [tags] * rows.height)))
        assert (("slurmd", "gpu01") in spans_in(given)) is shown
