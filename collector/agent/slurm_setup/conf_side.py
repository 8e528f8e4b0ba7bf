"""What is wrong on Slurm's side: another configuration, another cluster, one that no daemon has read yet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from collector.agent.failure import Missing
from collector.agent.slurm.installation import CONTROLLER, NODE, Installation
from collector.agent.slurm.programs import Call
from collector.agent.slurm_setup.findings import Finding
from collector.agent.source import Context

_LINE = re.compile(r"(?m)^\s*(\w+)\s*=\s*(.*?)\s*$")
#: 22.05 and newer, slurmd's list of paths, and older versions.
_REFUSED = re.compile(
    r"[^\n]*(?:(?:prolog|epilog|health_check)\w* can ?not be executed|(?:prolog|epilog): Unable to create list of paths"
    r"|Invalid (?:Prolog|Epilog)Slurmctld)[^\n]*",
    re.IGNORECASE,
)
#: ``scontrol show node -o``: the state, and a reason of slurmctld's own that says that the node has less than slurm.conf says.
_STATE, _LESS = re.compile(r"\bState=(\S+)"), re.compile(r"\bReason=((?:Low |gres/)[^\[\n]*)")
#: Of the daemon's log, from its end.
LOG_TAIL = 256 << 10


def of_installation(found: Installation) -> Iterator[Finding]:
    """What tells that this slurm.conf is not the one that counts."""
    conf = found.conf
    for missing in conf.missing:
        yield Finding(
            "no-include",
            f"{conf.path} includes {missing}, which cannot be read",
            "restore it, or remove the Include line",
        )
    if not found.roles:
        yield Finding("no-daemon", "neither slurmctld nor slurmd is installed here: no hook runs on this host",
                      "run this on the controller and on a compute node")  # fmt: skip
    for daemon in found.daemons:
        if daemon.conf and daemon.conf != conf.path and daemon.conf in found.others:
            yield Finding(
                "other-conf", f"{daemon} reads {daemon.conf}, not {conf.path}", f"verify with --conf {daemon.conf}"
            )
    named = (
        found.host.text(f"{conf.get('StateSaveLocation', '/var/spool')}/clustername")
        if CONTROLLER in found.roles
        else None
    )
    if named and conf.get("ClusterName") and named.strip().lower() != conf.get("ClusterName").lower():
        yield Finding("other-cluster", f"{conf.path} is of cluster {conf.get('ClusterName')}, and slurmctld's state here is of "
                      f"cluster {named.strip()}", "use the slurm.conf of that cluster (--conf FILE, SLURM_CONF)")  # fmt: skip


def of_running(found: Installation, calls: Sequence[Call]) -> Iterator[Finding]:
    """What the running slurmctld has read. Nothing where it cannot be asked: then the file is all there is."""
    if not found.host.is_this:
        return
    try:
        text = Context().answer(["scontrol", "show", "config"], timeout=15.0)
    except (Missing, OSError, TimeoutError):
        return
    running = {name.lower(): value for name, value in _LINE.findall(text)}
    theirs, ours = running.get("clustername", ""), found.cluster
    if theirs and ours and theirs.lower() != ours.lower():
        yield Finding("other-cluster", f"{found.conf.path} is of cluster {ours}, and the slurmctld that answers here is of cluster "
                      f"{theirs}", "use the slurm.conf of that cluster (--conf FILE, SLURM_CONF)")  # fmt: skip
        return
    for made in calls:
        value = running.get(made.program.setting.lower(), made.value)
        # Newer versions print lists as NAME[0]; those are not compared.
        if made.is_made and made.program.setting.lower() in running and value != made.value:
            yield Finding("not-reread", f"{made.value} ({made.at}) is not what slurmctld runs ({value})",
                          "run scontrol reconfigure", made.program.setting)  # fmt: skip


def of_node(found: Installation, node: str) -> Iterator[Finding]:
    """That slurmctld does not take this node as slurm.conf describes it: then no job starts here, and no hook runs."""
    if not found.host.is_this or NODE not in found.roles:
        return
    try:
        text = Context().answer(["scontrol", "show", "node", "-o", node], timeout=15.0)
    except (Missing, OSError, TimeoutError):
        return
    state, less = _STATE.search(text), _LESS.search(text)
    if less or (state and "INVAL" in state[1].upper()):
        why = less[1].strip() if less else f"its state is {state[1] if state else ''}"
        yield Finding("node-invalid", f"slurmctld starts no job on {node}: {why}",
                      f"correct the line NodeName of {node} in {found.conf.path} to what slurmd -C prints here (in a container or namespace: "
                      f"what that has), run scontrol reconfigure, and resume the node")  # fmt: skip


def refusals(found: Installation) -> list[str]:
    """What slurmctld and slurmd wrote last about programs that they could not run."""
    written: dict[str, None] = {}
    for daemon, setting in (("slurmctld", "SlurmctldLogFile"), ("slurmd", "SlurmdLogFile")):
        path = found.conf.get(setting)
        if path and found.runs(daemon):
            for line in _REFUSED.findall(_tail(found, path)):
                written[f"{path}: {line[:200]}"] = None
    return list(written)


def _tail(found: Installation, path: str) -> str:
    try:
        with found.host.path(path).open("rb") as stream:
            stream.seek(max(0, stream.seek(0, 2) - LOG_TAIL))
            return stream.read(LOG_TAIL).decode("utf-8", "replace")
    except OSError:
        return ""
