"""How fast other programs read the same lines on this machine, now: the reference for our own figures.

    python benchmarks/peers.py [--lines 500000]

Two machines differ by a factor of two and more, and so does one machine within an hour. The goals of these benchmarks
were set beside the figures of programs that everybody can install; each is measured here again, in lines per CPU
second:

- SEC with three rules that make one chain (link down, slurmd's error, the controller's line), single thread;
- rsyslog from TCP into a file, without parsing the text;
- DuckDB's ``read_json`` of the same lines as NDJSON into a table.

``ratio`` is this machine's figure by the known one. A program that is not installed is reported and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

TICK = os.sysconf("SC_CLK_TCK")

#: Lines per CPU second on the machine on which the goals were set (two Xeon cores with AVX-512, Debian 12): SEC 2.9.1
#: and rsyslog 8.2302 over 2 million lines of 122 bytes, DuckDB 2.0 over the same ones as NDJSON (191 bytes each).
KNOWN = {"SEC, three rules": 224_000, "rsyslog, TCP to file": 521_000, "DuckDB, read_json": 548_000}

#: The number of times that the chain occurs; SEC has to find each.
CHAINS = 100

_RULES = r"""type=Single
ptype=RegExp
pattern=(\S+) kernel: .*: Link is Down
desc=link down on $1
action=create LINK_DOWN_$1 300

type=Single
ptype=RegExp
pattern=(\S+) slurmd\[\d+\]: error: Unable to register
context=LINK_DOWN_$1
desc=slurmd of $1 after its link
action=create SLURMD_$1 300

type=Single
ptype=RegExp
pattern=slurmctld\[\d+\]: error: Nodes (\S+) not responding
context=SLURMD_$1
desc=chain of $1
action=write - chain $1
"""


def lines_of(count: int) -> list[bytes]:
    """Lines of benchmarks/simulators/log_lines.py with the chains between them, each without its line end."""
    from benchmarks.simulators.log_lines import HOSTS, Cluster
    from parsers.patterns import load

    made, part, lines = Cluster(load()).lines(count), max(1, count // (3 * CHAINS)), []
    for number in range(CHAINS):
        host = HOSTS[number]
        for stated in (
            f"{host} kernel: igb 0000:01:00.0 eno1: Link is Down",
            f"{host} slurmd[812]: error: Unable to register: Unable to contact slurm controller (connect failure)",
            f"mgmt00 slurmctld[411]: error: Nodes {host} not responding",
        ):
            lines += islice(made, part)
            lines.append(f"Jun  1 00:00:00 {stated}".encode())
    return [*lines, *made]


def of_children(work: Callable[[], None]) -> float:
    """CPU seconds of the processes that ``work`` starts and waits for."""

    def used() -> float:
        reported = resource.getrusage(resource.RUSAGE_CHILDREN)
        return reported.ru_utime + reported.ru_stime

    before = used()
    work()
    return used() - before


def sec(lines: list[bytes], folder: Path) -> float | None:
    """CPU seconds that SEC takes; None if it is not installed."""
    program = shutil.which("sec")
    if program is None:
        return None
    rules, text, found = folder / "rules.sec", folder / "lines.txt", folder / "chains.txt"
    rules.write_text(_RULES)
    text.write_bytes(b"\n".join(lines) + b"\n")

    def read() -> None:
        with found.open("wb") as out:
            asked = [program, f"--conf={rules}", f"--input={text}", "--notail"]
            subprocess.run(asked, stdout=out, stderr=subprocess.DEVNULL, check=True)

    used = of_children(read)
    chains = sum(line.startswith(b"chain ") for line in found.read_bytes().splitlines())
    if chains != CHAINS:
        raise RuntimeError(f"SEC found {chains} of {CHAINS} chains: its rules or its lines are not what they should be")
    return used


def rsyslog(lines: list[bytes], folder: Path) -> float | None:
    """CPU seconds that rsyslogd takes from TCP into a file; None if it is not installed."""
    program = shutil.which("rsyslogd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        return None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    wanted, config = folder / "received.txt", folder / "rsyslog.conf"
    config.write_text(
        f'global(workDirectory="{folder}")\nmodule(load="imtcp")\ntemplate(name="raw" type="string" string="%rawmsg%\\n")\n'
        f'input(type="imtcp" port="{port}" address="127.0.0.1" SupportOctetCountedFraming="off")\n*.* action(type="omfile" file="{wanted}" template="raw")\n'
    )
    process = subprocess.Popen([program, "-n", "-f", config, "-i", folder / "pid"], stderr=subprocess.DEVNULL)
    try:
        with _connected(port) as sender:
            before = _cpu(process.pid)
            for at in range(0, len(lines), 5_000):
                sender.sendall(b"\n".join(lines[at : at + 5_000]) + b"\n")
        written, deadline = 0, time.monotonic() + 120
        while written < len(lines) and time.monotonic() < deadline:
            time.sleep(0.2)
            written = wanted.read_bytes().count(b"\n") if wanted.exists() else 0
        used = _cpu(process.pid) - before
    finally:
        process.terminate()
        process.wait()
    if written < len(lines):
        raise RuntimeError(f"rsyslog wrote {written} of {len(lines)} lines within two minutes")
    return used


def _connected(port: int) -> socket.socket:
    deadline = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _cpu(pid: int) -> float:
    cells = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(cells[11]) + int(cells[12])) / TICK


def read_json(lines: list[bytes], folder: Path) -> float | None:
    """CPU seconds that DuckDB takes for the lines as NDJSON into a table on disk."""
    import duckdb  # the yardstick: DuckDB itself as a peer

    text = folder / "lines.ndjson"
    with text.open("w") as out:
        for number, line in enumerate(lines):
            row = {"ts": f"2026-06-01T00:00:00.{number % 10**6:06d}Z", "host": "gpu-0001", "program": "kernel"}
            out.write(json.dumps(row | {"severity": "info", "message": line.decode("utf-8", "replace")}) + "\n")
    with duckdb.connect(folder / "peer.duckdb") as connection:
        before = time.process_time()
        connection.execute("CREATE TABLE lines AS SELECT * FROM read_json(?, format='newline_delimited')", [str(text)])
        connection.execute("CHECKPOINT")
        return time.process_time() - before


PEERS: dict[str, Callable[[list[bytes], Path], float | None]] = dict(zip(KNOWN, (sec, rsyslog, read_json), strict=True))


def measured(count: int, names: tuple[str, ...] = tuple(KNOWN)) -> dict[str, float | None]:
    """Lines per CPU second of each; None: not installed here."""
    lines, rates = lines_of(count), {}
    for name in names:
        with tempfile.TemporaryDirectory(prefix="faultline-peer-") as scratch:
            used = PEERS[name](lines, Path(scratch))
        rates[name] = len(lines) / used if used else None
    return rates


def ratio(rates: dict[str, float | None]) -> float | None:
    """The speed of this machine by that of the one where the goals were set: the median of the peers' ratios."""
    ratios = [rate / KNOWN[name] for name, rate in rates.items() if rate]
    return median(ratios) if ratios else None


def described(rates: dict[str, float | None]) -> list[str]:
    """One line for each, and the median of the ratios."""
    rows = [
        f"{name:22s} {rate:>9,.0f} lines per CPU second here, {KNOWN[name]:,} where the goals were set: ratio {rate / KNOWN[name]:.2f}"
        if rate
        else f"{name:22s} not installed here (Debian: apt-get install sec rsyslog)"
        for name, rate in rates.items()
    ]
    speed = ratio(rates)
    return [*rows, f"this machine, now: {'no peer ran' if speed is None else f'{speed:.2f} of the speed of that one'}"]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--lines", type=int, default=500_000)
    print("\n".join(described(measured(options.parse_args().lines))))


if __name__ == "__main__":
    main()
