"""What to do about a device on the repair list, from the cheapest step to the most expensive.

The order is that of every optics vendor's field guide: look, clean, reseat, swap the cable or module, move it to
another port to distinguish the two ends, and only then replace the NIC or the port.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from correlator.repairs.model import Repair


@dataclass(frozen=True)
class Remedy:
    """A sentence and, where one helps, a command."""

    text: str
    command: str | None = None


@dataclass(frozen=True)
class _Rule:
    """The first rule whose ``holds`` is true gives the remedy. Its texts are filled with the repair's own fields."""

    holds: Callable[[Repair], bool]
    text: str
    command: str | None = None


_LOOK = "ethtool -m {device}"
_DRAIN = "scontrol update nodename={host} state=drain reason='link {device}'"

#: The state and the errors of a device of the bus, whatever it is.
_BUS = "lspci -vv -s {device}"

_RULES = (
    _Rule(lambda r: r.role == "pci" and r.outlier,
          "Find out what {device} of {host} is; when the node is idle, reseat it, and replace it or its slot if the errors go on.", _BUS),
    _Rule(lambda r: r.role == "pci", "Nothing yet: the bus corrects it. Watch {device} of {host}.", _BUS),
    _Rule(lambda r: r.kind == "gpu" and r.outlier,
          "Run the GPU's diagnostics when {host} is idle; replace it if the errors go on after a reset.", "dcgmi diag -r 3"),
    _Rule(lambda r: r.kind == "gpu", "Nothing yet: it corrects itself. Reset {device} of {host} when it is idle, then watch it.", "nvidia-smi -q -d ECC,ROW_REMAPPER"),
    _Rule(lambda r: r.down, "Reseat both ends of {ends}; if it stays dark, replace cable or module, then try another port of the switch.", _DRAIN),
    _Rule(lambda r: r.together > 1 and 2 * r.together >= r.flaps,
          "Ports of {host} go together: suspect the NIC, its module or its slot before any single cable. Reseat the NIC.", "ethtool -i {device}"),
    _Rule(lambda r: r.optics > 0, "Clean the connectors of {ends} and read the optical levels; replace the module that is out of its limits.", _LOOK),
    _Rule(lambda r: r.errors > 0, "Clean and reseat {ends}; replace cable or module if its error counters go on growing.", "mlxlink -d {device} -c -e"),
    _Rule(lambda r: r.outlier and bool(r.ended or r.slowed), "Drain {host} when it is idle and replace the cable or module of {ends}.", _DRAIN),
    _Rule(lambda r: r.outlier, "Reseat {ends}; replace cable or module if it flaps again, then move it to a spare port to tell the two ends apart.", _LOOK),
    _Rule(lambda r: r.urgency == "now", "Drain {host} when it is idle and check cable, module and switch port of {ends}.", _DRAIN),
    _Rule(lambda r: bool(r.ended or r.slowed), "Check cable, module and switch port of {ends} in the next window.", _LOOK),
    _Rule(lambda r: r.planes > 1, "Nothing now: {planes} planes carry the traffic. Reseat {ends} on the next round if it goes on."),
    _Rule(lambda r: True, "Nothing now: it flaps no more than others. Watch it."),
)  # fmt: skip


def is_drain(repair: Repair) -> bool:
    """Is the advice to drain the node?"""
    return repair.command is not None and repair.command == _DRAIN.format(host=repair.host, device=repair.device)


def remedy(repair: Repair) -> Remedy:
    """The next step for one device."""
    rule = next(rule for rule in _RULES if rule.holds(repair))
    ends = f"{repair.host} {repair.device}".strip()
    if repair.switch and repair.switch != repair.host:
        ends += f" and {repair.switch} {repair.switch_port or ''}".rstrip()
    words = {"host": repair.host, "device": repair.device, "ends": ends, "planes": repair.planes}
    return Remedy(rule.text.format(**words), rule.command.format(**words) if rule.command else None)
