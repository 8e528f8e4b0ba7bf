"""A second generator of syslog lines, as a twin of ``log_lines``: nothing of it comes from our catalogue of events.

    python -m benchmarks.simulators.storm_lines --lines 800000 [--events 20] [--hosts 1000] [--templates 250] [--seed 1] > FILE

Its texts are those that drivers, daemons and free-form programs write, as their documentation and sources have them,
with variable ids, tracebacks, JSON in messages and a few very long lines. Half of the hosts write RFC 3164 and half RFC
5424, both with ``<PRI>``. ``--events`` is the share of lines (per cent) that tell of faults; whether the parser reads
them as events is the parser's affair.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

START = datetime(2026, 2, 27, 10, tzinfo=UTC)
#: Lines a second, all hosts together; a storm of a thousand nodes writes more.
RATE = 20_000
_WORDS = [
    "cache", "session", "worker", "queue", "shard", "replica", "lease", "token", "index", "flush", "commit", "sync", "probe",
    "peer", "route", "bucket", "tenant", "object", "handler", "request", "stream", "cursor", "backend", "pool", "thread",
    "budget", "quota", "window", "retry", "upload", "digest", "volume", "snapshot",
]  # fmt: skip

Fill = Callable[[random.Random, str], tuple[int, str, str]]


def _kernel(level: int, text: str) -> Fill:
    def fill(rng: random.Random, host: str) -> tuple[int, str, str]:
        return level, "kernel", f"[{rng.randrange(10**6)}.{rng.randrange(10**6):06d}] {_filled(text, rng, host)}"

    return fill


def _daemon(facility_level: int, program: str, text: str) -> Fill:
    def fill(rng: random.Random, host: str) -> tuple[int, str, str]:
        return facility_level, f"{program}[{rng.randrange(400, 65000)}]", _filled(text, rng, host)

    return fill


def _filled(text: str, rng: random.Random, host: str) -> str:
    out = text
    while "{" in out:
        head, _, rest = out.partition("{")
        name, _, tail = rest.partition("}")
        out = head + _value(name, rng, host) + tail
    return out


def _value(name: str, rng: random.Random, host: str) -> str:
    if name == "pci":
        return f"0000:{rng.choice((0x17, 0x3A, 0x5D, 0x87, 0xAE, 0xD8)):02x}:00.0"
    if name == "port":
        return rng.choice(("ib0", "ib1", "ib2", "ib3", "eth0"))
    if name == "hex":
        return f"{rng.getrandbits(40):010x}"
    if name == "ip":
        return f"10.{rng.randrange(8)}.{rng.randrange(256)}.{rng.randrange(256)}"
    if name == "xid":
        return rng.choice(("13", "31", "43", "45", "48", "63", "74", "79", "94", "119"))
    if name == "word":
        return rng.choice(_WORDS)
    if name == "host":
        return host
    return str(rng.randrange(10 ** int(name[1:] or 5)))  # n5: a number of five digits


#: Lines of faults. Level 3 is "error", 4 "warning", 2 "critical"; a facility counts eight.
FAULTS: tuple[Fill, ...] = (
    _kernel(4, "NVRM: Xid (PCI:{pci}): {xid}, pid={n5}, name=python3, Ch {hex}"),
    _kernel(3, "pcieport {pci}: AER: Corrected error message received from {pci}"),
    _kernel(4, "{pci}: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)"),
    _kernel(6, "mlx5_core {pci} {port}: Link down"),
    _kernel(6, "mlx5_core {pci} {port}: Link up"),
    _kernel(3, "LustreError: {n5}:0:(client.c:{n4}:ptlrpc_expire_one_request()) @@@ Request sent has timed out for slow reply: [sent {n9}/real {n9}]  "
            "req@{hex} x{n9}/t0(0) o400->work-OST{n3}-osc-ffff{hex}@{ip}@o2ib:28/4"),
    _kernel(5, "nfs: server {ip} not responding, still trying"),
    _kernel(5, "nfs: server {ip} OK"),
    _kernel(3, "INFO: task python3:{n5} blocked for more than 122 seconds."),
    _kernel(3, "EDAC MC{n1}: 1 CE memory read error on CPU_SrcID#0_MC#{n1}_Chan#0_DIMM#0 (channel:0 slot:0 page:0x{hex})"),
    _kernel(4, "CPU{n2}: Package temperature above threshold, cpu clock throttled (total events = {n6})"),
    _daemon(27, "slurmd", "error: Unable to register: Unable to contact slurm controller (connect failure)"),
    _daemon(27, "slurmd", "error: slurm_receive_msg_and_forward: Zero Bytes were transmitted or received"),
    _daemon(27, "slurmstepd", "error: *** STEP {n6}.0 ON {host} CANCELLED AT 2026-02-27T10:00:00 DUE TO TIME LIMIT ***"),
    _daemon(30, "systemd", "slurmd.service: Main process exited, code=exited, status=1/FAILURE"),
    _daemon(28, "nvidia-fabricmanager", "detected NVSwitch non-fatal error 12028 on NVSwitch pci {pci} physical id {n1} port {n2}"),
)  # fmt: skip


def _templates(count: int, rng: random.Random) -> list[Fill]:
    """Applications that nobody declared: free text, key=value, JSON."""
    made: list[Fill] = []
    for number in range(count):
        program = f"{rng.choice(_WORDS)}-{rng.choice(_WORDS)}d" if number % 3 else rng.choice(("sshd", "CRON", "systemd", "chronyd", "dockerd"))  # fmt: skip
        words = " ".join(rng.sample(_WORDS, rng.randrange(3, 9)))
        shape = number % 5
        if shape == 0:
            made.append(_as_json(program, words))
        elif shape == 1:
            made.append(_daemon(30, program, f"{words} id={{hex}} took={{n4}}ms from {{ip}} port {{n5}}"))
        elif shape == 2:
            made.append(_daemon(86, program, f"{words}: {{word}} {{n6}} of {{n6}} ({{hex}})"))
        elif shape == 3:
            made.append(_daemon(30, program, f'level=info msg="{words}" user=u{{n3}} remote={{ip}} bytes={{n7}}'))
        else:
            made.append(_daemon(14, program, f"[{{hex}}] {words.capitalize()}. {{word}}={{n5}}, {{word}}={{n3}}"))
    return made


def _as_json(program: str, words: str) -> Fill:
    def fill(rng: random.Random, host: str) -> tuple[int, str, str]:
        body = {"msg": words, "node": host, "trace": f"{rng.getrandbits(64):016x}", "ms": rng.randrange(5000), "ok": rng.random() < 0.98}  # fmt: skip
        return 30, f"{program}[{rng.randrange(400, 65000)}]", json.dumps(body)

    return fill


def _traceback(rng: random.Random, host: str) -> list[tuple[int, str, str]]:
    tag = f"trainer[{rng.randrange(400, 65000)}]"
    frames = [f'  File "/work/u{rng.randrange(300)}/step.py", line {rng.randrange(900)}, in {rng.choice(_WORDS)}' for _ in range(5)]  # fmt: skip
    return [(11, tag, text) for text in ("Traceback (most recent call last):", *frames, "KeyError: 'batch'")]


def lines(count: int, *, events: float = 20.0, hosts: int = 1_000, templates: int = 250, seed: int = 1) -> Iterator[str]:  # fmt: skip
    """``count`` lines in time order, without line ends. ``events`` is the share of lines of faults, per cent."""
    rng = random.Random(seed)
    plain, names = _templates(templates, rng), [f"node{n:05d}" for n in range(hosts)]
    made, moment, gap = 0, START, timedelta(seconds=1 / RATE)
    while made < count:
        host = rng.choice(names)
        if rng.random() * 100 < events:
            texts = [rng.choice(FAULTS)(rng, host)]
        elif rng.random() < 0.002:
            texts = _traceback(rng, host)
        else:
            priority, tag, text = rng.choice(plain)(rng, host)
            texts = [(priority, tag, text + " x" * 4000 if rng.random() < 0.00005 else text)]
        for priority, tag, text in texts[: count - made]:
            moment += gap
            made += 1
            yield _line(host, moment, priority, tag, text)


def _line(host: str, moment: datetime, priority: int, tag: str, text: str) -> str:
    if int(host[-1]) % 2:
        return f"<{priority}>{moment:%b} {moment.day:2d} {moment:%H:%M:%S} {host} {tag}: {text}"
    name, _, pid = tag.partition("[")
    return f"<{priority}>1 {moment:%Y-%m-%dT%H:%M:%S.%f}Z {host} {name} {pid.rstrip(']') or '-'} - - {text}"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--lines", type=int, default=800_000)
    options.add_argument("--events", type=float, default=20.0, help="per cent of the lines")
    options.add_argument("--hosts", type=int, default=1_000)
    options.add_argument("--templates", type=int, default=250)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    for line in lines(given.lines, events=given.events, hosts=given.hosts, templates=given.templates, seed=given.seed):
        sys.stdout.write(line + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
