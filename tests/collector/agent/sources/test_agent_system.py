"""What the system reports: failed units, boots, the journal."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from made_host import BOOT, NOW, Host, asked, parsed, rows

from collector.agent import wire
from collector.agent.runner import Runner
from parsers.engine import LineParser


def test_a_failed_unit_is_reported_once_with_its_time(host: Host, parser: LineParser) -> None:
    host.put("/run/systemd/system/x", "")
    program = host.program(
        "systemctl",
        'case "$1" in list-units) echo "slurmd.service loaded failed failed Slurm node daemon";;\n'
        '*) echo Result=exit-code; echo "InactiveEnterTimestamp=Sat 2026-11-21 16:20:05 UTC"; echo InvocationID=ab12;; esac',
    )
    runner = host.runner("units", program=program)
    (event,) = parsed(parser, asked(runner))
    assert event["event"] == "sys.service_failed" and event["host"] == "gpu01"
    assert event["time"] == datetime(2026, 11, 21, 16, 20, 5)
    host.wait(31)
    assert asked(runner) == []
    assert asked(host.runner("units", json.loads(json.dumps(runner.positions)), program=program)) == []


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (None, None),
        ({"boot": BOOT, "alive": NOW - 30}, None),
        ({"boot": BOOT, "alive": NOW - 3600}, "not running"),
        ({"boot": "another", "alive": NOW - 30}, "rebooted"),
    ],
)
def test_time_without_an_agent_is_a_blind_period(host: Host, before: dict[str, Any] | None, told: str | None) -> None:
    found = asked(host.runner("boot", {"boot": before} if before else {}))
    assert [told in row["blind"]["reason"] for row in found] == ([True] if told else [])
    if before and told:
        assert found[0]["blind"]["from"] == wire.stamp(before["alive"])


ENTRY = (
    '{"__CURSOR":"s=1;i=%x;b=2;m=3;t=4;x=5","__REALTIME_TIMESTAMP":"%d","MESSAGE":"munge.service: Failed with result '
    '\'exit-code\'.","SYSLOG_IDENTIFIER":"systemd","_HOSTNAME":"gpu01","PRIORITY":"4"}'
)


def test_the_journal_is_read_on_from_its_cursor(host: Host, parser: LineParser) -> None:
    host.put("/entries", "".join(ENTRY % (n, (NOW - 60 + n) * 1e6) + "\n" for n in (1, 2)))
    program = host.program(
        "journalctl",
        f'echo "$@" >> {host.root}/asked\ncase "$*" in *--follow*) cat {host.root}/entries; exec sleep 60;; esac',
    )
    runner = host.runner("journald", program=program)
    events = parsed(parser, _patiently(runner))
    assert [(r["event"], r["host"], r["source"]) for r in events] == [("sys.service_failed", "gpu01", "syslog")] * 2
    kept = runner.positions["journald"]
    assert kept["cursor"] == "s=1;i=2;b=2;m=3;t=4;x=5"
    runner.close()
    again = host.runner("journald", {"journald": kept}, program=program)
    _patiently(again)
    again.close()
    commands = (host.root / "asked").read_text().splitlines()
    assert "_TRANSPORT=syslog" in commands[0] and "_TRANSPORT=kernel" not in commands[0]
    assert any("--after-cursor=s=1;i=2;b=2;m=3;t=4;x=5" in command for command in commands)


def _patiently(runner: Runner) -> list[dict[str, Any]]:
    """The output of a child process, as soon as there is some."""
    end = time.monotonic() + 120
    found: list[dict[str, Any]] = []
    while not found and time.monotonic() < end:
        found = rows(runner.poll())
        time.sleep(0.01)
    return found


def test_a_vacuumed_journal_is_a_blind_period(host: Host) -> None:
    oldest = ENTRY % (900, NOW * 1e6)
    host.put("/oldest", oldest)
    program = host.program("journalctl", f'case "$*" in *--follow*) exec sleep 60;; *) cat {host.root}/oldest;; esac')
    runner = host.runner("journald", {"journald": {"cursor": "gone", "time": NOW - 7200}}, program=program)
    (gap,) = asked(runner)
    assert gap["blind"]["from"] == wire.stamp(NOW - 7200) and gap["blind"]["to"] == wire.stamp(NOW)
    runner.close()


def _long(n: int, size: int) -> str:
    return (ENTRY % (n, NOW * 1e6)).replace("Failed with", "x" * size)


@pytest.mark.parametrize(
    ("behaviour", "found"),
    [
        ("cat {0}/long; exec sleep 60", [1, 2]),
        ("head -c 100000 /dev/zero | tr '\\0' '\\n' >&2; cat {0}/short; exec sleep 60", [1, 2]),
        ("cat {0}/short; printf '{{\"half\": '; exit 3", [1, 2, 1, 2]),
    ],
    ids=["an entry larger than a piece", "a child that complains a lot", "a child that dies in the middle of a line"],
)
def test_a_journal_is_read_on_whatever_its_child_does(behaviour: str, found: list[int], host: Host) -> None:
    """Found by reading: each of them ended the journal for good, and the source reported that it was well."""
    host.put("/short", "".join(ENTRY % (n, NOW * 1e6) + "\n" for n in (1, 2)))
    host.put("/long", _long(1, 700_000) + "\n" + ENTRY % (2, NOW * 1e6) + "\n")
    program = host.program(
        "journalctl", f'case "$*" in *--follow*) {behaviour.format(host.root)};; *) cat {host.root}/short;; esac'
    )
    runner = host.runner("journald", program=program)
    seen: list[int] = []
    end = time.monotonic() + 120
    while len(seen) < len(found) and time.monotonic() < end:
        for row in rows(runner.poll()):
            seen += [int(number) for number in re.findall(r"s=1;i=(\d+)", row.get("lines", ""))]
        host.wait(11 if runner.status.state == "error" else 0)
        time.sleep(0.01)
    runner.close()
    assert seen == found


def test_a_journal_whose_oldest_entry_is_not_found_stops_nobody(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.agent.sources.journald._PATIENCE_S", 0.2, raising=False)
    host.context = dataclasses.replace(host.context, monotonic=time.monotonic)
    host.put("/entry", ENTRY % (9, NOW * 1e6) + "\n")
    program = host.program(
        "journalctl", f'case "$*" in *--follow*) cat {host.root}/entry; exec sleep 60;; *) exec sleep 600;; esac'
    )
    runner = host.runner("journald", {"journald": {"cursor": "gone", "time": NOW - 7200}}, program=program)
    begun = time.monotonic()
    assert [row for row in _patiently(runner) if "lines" in row]
    runner.close()
    assert time.monotonic() - begun < 300, "it was waited for"


JOURNAL_REMOTE = "/lib/systemd/systemd-journal-remote"


@pytest.mark.skipif(
    not (shutil.which("journalctl") and Path(JOURNAL_REMOTE).exists()),
    reason="needs journalctl and systemd-journal-remote",
)
def test_a_real_journal(host: Host, tmp_path: Path, parser: LineParser) -> None:
    """journalctl itself over a journal made for it.

    No kernel lines, continued from the cursor, no gap where there is none.
    """

    def entry(n: int, transport: str) -> str:
        at = int(NOW * 1e6) + n * 1_000_000
        return (
            f"__REALTIME_TIMESTAMP={at}\n__MONOTONIC_TIMESTAMP={n + 1}\n_BOOT_ID={'0123456789abcdef' * 2}\nPRIORITY=4\n"
            f"MESSAGE=line {n}\nSYSLOG_IDENTIFIER=sshd\n_TRANSPORT={transport}\n_HOSTNAME=gpu01\n\n"
        )

    def log(*entries: str) -> None:
        (tmp_path / "export").write_text("".join(entries))
        command = [JOURNAL_REMOTE, "-o", str(tmp_path / "system.journal"), str(tmp_path / "export")]
        subprocess.run(command, check=True, capture_output=True)

    log(entry(0, "syslog"), entry(1, "kernel"), entry(2, "journal"))
    program = host.program("journalctl", f'exec {shutil.which("journalctl")} --directory={tmp_path} "$@"')
    runner = host.runner("journald", program=program, first_hours=1e5)
    found = parsed(parser, _patiently(runner))
    assert [(r["message"], r["unit"], r["source"]) for r in found] == [
        ("line 0", "sshd", "syslog"),
        ("line 2", "sshd", "syslog"),
    ]
    kept = dict(runner.positions)
    runner.close()
    log(entry(3, "syslog"))
    again = host.runner("journald", kept, program=program)
    rows_ = _patiently(again)
    assert [r["message"] for r in parsed(parser, rows_)] == ["line 3"]
    assert not [row for row in rows_ if "blind" in row]
    again.close()


def test_a_journal_that_a_tailed_file_repeats_is_left_alone(host: Host) -> None:
    host.put("/var/log/syslog", "x")
    runner = host.runner("journald")
    list(runner.poll())
    assert runner.status.state == "absent" and "/var/log/syslog" in runner.status.detail
