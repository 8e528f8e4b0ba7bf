"""The severity that lines themselves state, if their headers do not."""

from __future__ import annotations

import polars as pl
import pytest

from parsers import levels
from parsers.engine import LineParser
from parsers.record import Origin

TEXTS = {
    "error": (
        "srun: error: Unable to allocate", "ERROR: no route", "[ERROR] disk gone", "Error: bad option", "wandb: ERROR cannot sync",
        "[gx1:77:0]   mpool.c:176  UCX  ERROR no chunk", "E0401 08:24:00.123456 7 a.go:5] no node", "[E401 08:28:00.1 Process.cpp:6] [Rank 1] x",
        "level=error msg=x", 'time="2026-01-01T00:00:00Z" level="error" msg=x', "E [socket.c:811:__shut] 0-vol: gone",
        "2026-01-01T00:00:00Z E! [outputs.x] refused", "E external/xla/service/a.cc:38] stuck", "HPL ERROR: stopped",
    ),
    "warning": (
        "WARNING:root:slow", "<warn>  [1775031541.1] dhcp4 (eno1): timed out", "libfabric:9:177::core:core:f():33<warn> none found",
        "%PLATFORM-ENV-4-HOT : warm", "[W socket.cpp:464] [c10d] cannot bind", "TID 140: [portmgrd.WARNING]: port", "ts=2026-01-01T00:00:00Z caller=a.go:4 level=warn msg=x",
    ),
    "info": ("gx1:7:8 [3] NCCL INFO Channel 00", "[plugin:main] - INFO - started", "INFO    Starting build", "[mgmtd.INFO]: user"),
    "notice": (" notice: State transition", "[mgmtd.NOTICE]: User admin"),
    "debug": ("slurmstepd: debug: task 0", "DEBUG   [U=5,P=7]    startup()"),
    "crit": ("fatal: no configuration", "squeue: fatal: gone", "[CRITICAL] full"),
    None: (
        "%", "%A-9-B: x", "%-3-X: y", "%ADJCHANGE: down", "%A-3-b: x",
        "", "Accepted publickey for zoe", "validation error: 0.3", "got ERROR from peer", "step 3 | loss 2.1 | error rate 0.1", "Last error:",
        "E", "I think so", "levels=error", "level=", "[", "<", "failure: none", "NCCL WARN messages are off", "A worker died", "10:11 -", "é error: x",
    ),
}  # fmt: skip


def test_levels() -> None:
    cases = [(level, text) for level, texts in TEXTS.items() for text in texts]
    messages = pl.Series([text for _, text in cases])
    nothing = pl.Series([None] * len(cases), dtype=pl.String)
    found = levels.filled(nothing, levels.written(nothing, nothing, messages)).to_list()
    assert [(level, text) for level, text in cases] == list(zip(found, messages, strict=True))


def test_what_is_known_stays_and_the_kernel_is_not_asked() -> None:
    severities = pl.Series(["notice", None, None])
    found = levels.written(severities, pl.Series(["syslog", "kernel", None]), pl.Series(["ERROR: x"] * 3))
    assert levels.filled(severities, found).to_list() == ["notice", None, "error"]


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("Feb 28 16:29:24 gx7 audisp[3]: error: queue is full", "error"),
        ("Feb 28 16:29:24 gx7 kernel: INFO: task ckpt:4 blocked for more than 120 seconds.", "error"),  # the event's
        (
            "Feb 28 16:29:24 leaf1 Ebra: %LINEPROTO-5-UPDOWN: Line protocol on Interface Ethernet3, changed state to down",
            "notice",
        ),
        ("Feb 28 16:29:24 gx7 sshd[3]: Accepted publickey for zoe", None),
    ],
)
def test_lines(line: str, severity: str | None) -> None:
    assert LineParser().parse([line.encode()], Origin())["severity"].to_list() == [severity]
