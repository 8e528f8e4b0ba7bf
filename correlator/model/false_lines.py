"""The event about lines that were shown to be false, and the ways in which such lines come (evidence/forgeries.py)."""

from __future__ import annotations

from dataclasses import dataclass

FORGED = "security.forged_evidence"
#: The layer of these events, which no lane of an incident has.
LAYER = "security"
SUMMARY = (
    "Lines that were shown to be false: who could have written them, how, and on whom they would have put the blame. Nothing is concluded "
    "from it, and no user who sees only their own runs sees it."
)


@dataclass(frozen=True)
class Channel:
    """A way for false lines. ``summary`` and ``shown_by`` are for people: what was written, and what shows that it is
    false."""

    name: str
    summary: str
    shown_by: str


LOCAL = Channel(
    "syslog of the host",
    "a line in the name of the host's kernel that a program wrote there",
    "it carries no uptime, and earlier lines of this kernel carry one; or a copy of it has the facility of a program",
)
LOG_HOST = Channel(
    "log host",
    "a line in the name of a host's kernel that only another host's file has",
    "the host's own file was collected over that minute, gets lines of this kernel, and does not have it",
)
AS_CONTROLLER = Channel(
    "syslog as slurmctld",
    "a line of slurmctld's from a compute node",
    "slurm.conf or a file of slurmctld's names another host, and that host's slurmctld sends lines",
)
CONTROLLERS_FILE = Channel(
    "file of slurmctld",
    "a file of slurmctld's from a compute node",
    "slurm.conf names another controller, which sends lines as well",
)
OTHER_ADDRESS = Channel(
    "syslog from another address",
    "a line that names another host than the one whose address sent it",
    "the named host has lines of its own in that or the preceding quarter of an hour, and does not report the same within 15 minutes; the "
    "address is no relay",
)
CONTROLLERS_LOG = Channel(
    "slurmctld's own file",
    "a line within slurmctld's own file that says that a node is lost",
    "a run of that node, or the job that was to be killed with it, ended by itself later, as accounting and slurmctld say",
)
CHANNELS = (LOCAL, LOG_HOST, AS_CONTROLLER, CONTROLLERS_FILE, OTHER_ADDRESS, CONTROLLERS_LOG)
