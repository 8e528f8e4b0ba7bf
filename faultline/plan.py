"""``faultline plan``: services, cores and disk for a cluster, from what this machine does with a sample of lines.

It measures and multiplies; it knows nothing of the other machine. A site's own lines (``--sample``) make a better estimate:
what a line costs depends on how long it is, how it varies, and how often it tells of an event.
"""

from __future__ import annotations

import json
import math
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from faultline.failure import CommandError

if TYPE_CHECKING:
    from store.door import Door

#: Lines of the sample. Fewer would measure the start of a process; more take longer than a minute on a slow machine.
SAMPLE_LINES = 100_000
WARM_UP_LINES = 2_000
#: The busiest minutes have this many times the lines of the average, unless the caller knows better: a flap of a switch with
#: hundreds of nodes, a storm of AER errors.
PEAK = 10.0
#: Cores are not planned fuller than this: queries, pages and reports need the rest.
FULL = 0.6
#: The part of a line's CPU that its one writing process takes, the others being parsers (docs/measurements.md): what limits
#: one service.
WRITER = 0.6
#: Added to the disk: the write-ahead log, free blocks, the spool of minutes without a store.
DISK_MARGIN = 1.3
_STARTED = datetime(2026, 3, 2, 8)


@dataclass(frozen=True)
class Measured:
    """What a sample cost here: CPU seconds for each line, taken in and concluded about; bytes of a line as it was sent, in the
    database, and in the file of a closed day; and the part of the lines that are events."""

    lines: int
    take_in_s: float
    conclude_s: float
    raw: float
    hot: float
    closed: float
    events: float
    sample: str

    @property
    def cpu_s(self) -> float:
        return self.take_in_s + self.conclude_s


def plan(
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Nodes that send.")],
    lines_per_node: Annotated[float, typer.Option("--lines-per-node", min=0, help="Lines a node sends in a day, all its logs together.")],
    days: Annotated[int, typer.Option("--days", min=1, help="Days that lines are kept.")] = 90,
    hot_days: Annotated[int, typer.Option("--hot-days", min=0, help="Days that stay in the database (hot_days of the configuration).")] = 2,
    peak: Annotated[float, typer.Option("--peak", min=1, help="How many times the average the busiest minutes have.")] = PEAK,
    sample: Annotated[Path | None, typer.Option("--sample", help="A file of the site's own lines to measure with.")] = None,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> int:  # fmt: skip
    """Estimate services, cores and disk for a cluster, by measuring this machine for about half a minute."""
    if format not in ("text", "json"):
        raise CommandError(f"--format {format}: one of text, json")
    found = estimate(measure(sample), nodes, lines_per_node, days, hot_days, peak)
    print(json.dumps(found, indent=1, sort_keys=True) if format == "json" else "\n".join(_words(found)))
    return 0


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: faultline plan --nodes 512 --lines-per-node 50000 --days 90")(plan)


def estimate(
    measured: Measured, nodes: int, lines_per_node: float, days: int, hot_days: int = 2, peak: float = PEAK
) -> dict[str, Any]:
    """What the cluster needs, and what that rests on."""
    a_day = nodes * lines_per_node
    average = a_day / 86_400
    one_service = 1.0 / (measured.cpu_s * WRITER)
    hot = min(hot_days + 1, days)  # today is one of them
    size = a_day * (hot * measured.hot + (days - hot) * measured.closed) * DISK_MARGIN
    return {
        "nodes": nodes, "lines_a_day": round(a_day), "lines_a_second": round(average, 1), "peak_lines_a_second": round(average * peak, 1),
        "instances": max(1, math.ceil(average * peak / one_service)),
        "cores": max(2, math.ceil(average * peak * measured.cpu_s / FULL)),
        "disk_gb": round(size / 1e9, 1), "days": days, "hot_days": hot_days, "peak": peak,
        "measured": asdict(measured) | {"lines_per_cpu_second": round(1.0 / measured.cpu_s)},
    }  # fmt: skip


def measure(sample: Path | None = None) -> Measured:
    """Takes a sample in, concludes about it and closes its days, in a store that is thrown away. Raises ``CommandError`` for a
    sample that cannot be read or has no lines."""
    from collector.ingest import Ingest
    from correlator.engine import correlate
    from store import open_store

    with tempfile.TemporaryDirectory(prefix="faultline-plan-") as scratch:
        logs, few = Path(scratch) / "sample.log", Path(scratch) / "few.log"
        count = _write(logs, sample)
        with logs.open("rb") as read:
            few.write_bytes(b"".join(islice(read, WARM_UP_LINES)))
        with open_store(Path(scratch) / "first") as store:  # what is compiled and loaded once is no cost of a line
            Ingest(store, workers=0).run([few])
            correlate(store)
        with open_store(Path(scratch) / "store") as store:
            parser_ready = time.process_time()
            Ingest(store, workers=0).run([logs])
            taken_in = time.process_time()
            correlate(store)
            concluded = time.process_time()
            rows = Counted.of(store)
            store.checkpoint()
            hot = _bytes(Path(scratch) / "store")
            closed = store.close_days(date.max, hot_days=0)
        if not rows.lines:
            raise CommandError(f"{sample}: no line of it was stored: is it a log?")
        # A day with few lines stays in the database.
        archived = closed.bytes / closed.lines if closed.lines else hot / rows.lines
        return Measured(
            rows.lines, (taken_in - parser_ready) / count, (concluded - taken_in) / count, logs.stat().st_size / count,
            hot / rows.lines, archived, rows.events / rows.lines, str(sample or "lines made by this command"),
        )  # fmt: skip


@dataclass(frozen=True)
class Counted:
    lines: int
    events: int

    @classmethod
    def of(cls, store: Door) -> Counted:
        from queries import kql

        counts = kql.Query('Logs | summarize Lines = count(), Seen = countif(Event != "other")')
        (row,) = store.run_kql(counts).rows
        return cls(int(row[0]), int(row[1]))


def _write(to: Path, sample: Path | None) -> int:
    """Writes the sample's lines; returns how many."""
    if sample is None:
        to.write_text("".join(f"{line}\n" for line in islice(_made(), SAMPLE_LINES)))
        return SAMPLE_LINES
    from collector.files import BROKEN, opened

    try:
        with opened(sample.resolve()) as read, to.open("wb") as write:
            count = sum(1 for line in islice(read, SAMPLE_LINES) if write.write(line))
    except BROKEN as error:
        raise CommandError(f"--sample {sample}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not count:
        raise CommandError(f"--sample {sample}: it has no lines")
    return count


_ORDINARY = (
    "sshd[{a}]: Accepted publickey for u{b} from 10.0.{c}.{d} port {a} ssh2: ED25519 SHA256:{h}",
    "systemd[1]: session-{a}.scope: Deactivated successfully.",
    "slurmd[{b}]: launch task StepId={a}.0 request from UID:{b} GID:{b} HOST:10.0.{c}.{d} PORT:{a}",
    "CRON[{a}]: (root) CMD (run-parts /etc/cron.{c})",
    "dockerd[{b}]: level=info msg=\"container {h} exited\" status={c}",
    "chronyd[{b}]: Selected source 10.0.{c}.{d}",
    "nslcd[{b}]: [{h}] <group/member=\"u{b}\"> request done in {a} us",
    "kernel: [{a}.{b}] audit: type=1400 audit({a}.{c}:{b}): apparmor=\"ALLOWED\" operation=\"open\" pid={b} comm=\"python3\"",
)  # fmt: skip
_FAULTS = (
    "kernel: [{a}.{b}] mlx5_core 0000:{c:02x}:00.0 ib0: Link down",
    "kernel: [{a}.{b}] mlx5_core 0000:{c:02x}:00.0 ib0: Link up",
    "kernel: [{a}.{b}] pcieport 0000:{c:02x}:00.0: AER: Corrected error received: 0000:{c:02x}:00.0",
)
#: One line in this many tells of a fault: about what nodes send that are in order.
_FAULT_IN = 100


def _made() -> Iterator[str]:
    """Lines of syslog of 200 nodes, the same in each run."""
    rng = random.Random(1)
    for number in range(SAMPLE_LINES):
        at = _STARTED + timedelta(milliseconds=20 * number)
        text = rng.choice(_FAULTS if rng.randrange(_FAULT_IN) == 0 else _ORDINARY)
        values = {"a": rng.randrange(1000, 65000), "b": rng.randrange(1000, 9999), "c": rng.randrange(200), "d": rng.randrange(250)}  # fmt: skip
        yield f"{at:%b} {at.day:2d} {at:%H:%M:%S} node{rng.randrange(200):03d} {text.format(**values, h=f'{rng.getrandbits(160):040x}')}"


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _words(found: dict[str, Any]) -> Iterator[str]:
    m = found["measured"]
    yield f"For {found['nodes']:,} nodes, {found['lines_a_day']:,} lines a day ({found['lines_a_second']:,} a second, {found['peak_lines_a_second']:,} in the busiest minutes):"
    yield f"  instances  {found['instances']}"
    yield f"  cores      {found['cores']} of this kind, at most {FULL:.0%} full in the busiest minutes"
    yield f"  disk       {found['disk_gb']:,} GB for {found['days']} days, {found['hot_days']} of them and today in the database, with {DISK_MARGIN - 1:.0%} to spare"
    yield (
        f"Measured here with {m['lines']:,} lines ({m['sample']}; {m['events']:.1%} of them events): {m['lines_per_cpu_second']:,} lines per CPU-second "
        f"({m['take_in_s'] * 1e6:.1f} us to take a line in, {m['conclude_s'] * 1e6:.1f} us to conclude about it); {m['raw']:.0f} bytes a line as sent, "
        f"{m['hot']:.0f} in the database, {m['closed']:.0f} when its day is closed."
    )
    yield "This is an estimate: other lines and other machines differ. faultline plan --sample FILE measures with your own lines."
