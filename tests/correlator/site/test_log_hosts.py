"""A log host that keeps what others send among its own lines: anybody can send it a line in its own name."""

from __future__ import annotations

import pytest

from correlator.site.open_lines import log_host_folder
from tests.correlator.erins_job import HERS, XID, concluded

OWN, ANOTHER, RING = "nodes/loghost/syslog", "nodes/loghost/remote/gx02/syslog", "nodes/loghost/dmesg"
#: What anybody sent in the log host's name, or its own kernel's line.
ITS_OWN = f"Feb 28 10:19:55 loghost kernel: {XID}\n"
OF_GX02 = "Feb 28 10:25:00 gx02 kernel: audit: backlog limit exceeded\n"
IN_THE_RING = f"[Sat Feb 28 10:19:55 2026] {XID}\n"


@pytest.mark.parametrize("live", [False, pytest.param(True, marks=pytest.mark.long)], ids=["at once", "by ticks"])
@pytest.mark.parametrize(
    ("files", "sending", "counts"),
    [
        pytest.param({OWN: ITS_OWN}, True, True, id="a host that keeps only its own lines"),
        pytest.param({OWN: ITS_OWN + OF_GX02}, True, False, id="a log host"),
        pytest.param({OWN: ITS_OWN + OF_GX02.replace("gx02", "localhost")}, True, True, id="before it had a name"),
        pytest.param({OWN: ITS_OWN, ANOTHER: OF_GX02}, True, True, id="a log host with a folder for each sender"),
        pytest.param({OWN: ITS_OWN + OF_GX02}, False, True, id="where no user can send"),
        pytest.param({OWN: ITS_OWN + OF_GX02, RING: IN_THE_RING}, True, True, id="with the kernel's own ring"),
        # A user's message with a line end in it looks like a line of gx02 there.
        pytest.param(
            {"nodes/gx04/syslog": ITS_OWN.replace("loghost", "gx04").replace("10:19:55", "10:22:55") + OF_GX02},
            True, True, id="a node without a job at the time",
        ),
    ],
)  # fmt: skip
def test_a_line_in_a_log_hosts_own_name(files: dict[str, str], sending: bool, counts: bool, live: bool) -> None:
    found = concluded(files, live, HERS, sending=sending)
    host = next(iter(files)).split("/")[1]
    assert any(i["root_cause"]["host"] == host for i in found["incidents"]) == counts


@pytest.mark.parametrize(
    ("file", "host", "folder"),
    [
        ("nodes/loghost/syslog", "gx02", "nodes/loghost"),
        ("loghost:/var/log/messages.1", "gx02.cluster.example", "loghost:/var/log"),
        ("loghost:/var/log/messages", "LOGHOST.cluster.example", None),
        ("loghost:/var/log/remote.log", "gx02", None),
        ("loghost:/var/log/syslog", "localhost", None),
        ("loghost/syslog", "gx02", None),
        ("syslog:10.0.0.1", "gx02", None),
    ],
)
def test_the_folder_of_a_log_hosts_files(file: str, host: str, folder: str | None) -> None:
    assert log_host_folder(file, host) == folder
