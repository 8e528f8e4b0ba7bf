"""The meaning of NVIDIA's error codes: Xids of GPUs and SXids of NVSwitches, from ``catalogue/xid.csv`` and
``sxid.csv``.

The actions are those that NVIDIA's catalogue recommends, under its names; classes and texts are ours. An unlisted code
keeps its number: unlisted codes occur in the field, and they are not "harmless".
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_CATALOGUE = Path(__file__).with_name("catalogue")
#: NVIDIA's names of immediate actions, in words.
ACTIONS = {
    "RESTART_APP": "restart the program", "RESET_GPU": "reset the GPU when its jobs are gone", "RESTART_BM": "reboot the node",
    "RESTART_VM": "restart the virtual machine", "IGNORE": "nothing, unless it comes again", "CONTACT_SUPPORT": "ask NVIDIA's support",
    "CHECK_MECHANICALS": "check power cables and seating", "UPDATE_SWFW": "update driver and firmware", "CHECK_UVM": "check the driver's memory manager",
    "WORKFLOW_XID_45": "look at the error before it; alone, restart the fabric manager", "WORKFLOW_XID_48": "drain and reset the GPU, then look for 63 and 64",
    "WORKFLOW_NVLINK_ERR": "look at both ends of the link", "WORKFLOW_NVLINK5_ERR": "look at both ends of the link; its codes say which end",
    "FOLLOW_TEXT": "do what the line says",
}  # fmt: skip


@dataclass(frozen=True)
class Xid:
    """``action`` at once and ``then`` afterwards, under NVIDIA's names, None if there is none; ``text`` describes the
    error."""

    code: int
    kind: str
    action: str | None
    then: str | None
    text: str
    unused: bool = False

    @property
    def advice(self) -> str | None:
        """The action in words; None if NVIDIA recommends none."""
        return ACTIONS.get(self.action or "")


@lru_cache(maxsize=1)
def xids() -> dict[int, Xid]:
    """Every Xid of the catalogue by its code."""
    with (_CATALOGUE / "xid.csv").open(encoding="utf-8", newline="") as file:
        return {
            int(row["xid"]): Xid(
                int(row["xid"]),
                row["class"],
                row["action"] or None,
                row["then"] or None,
                row["text"],
                row["unused"] == "yes",
            )
            for row in csv.DictReader(file)
        }


@lru_cache(maxsize=1)
def sxids() -> dict[int, str]:
    """Class of every SXid of the catalogue: non-fatal, fatal, always-fatal or unknown."""
    with (_CATALOGUE / "sxid.csv").open(encoding="utf-8", newline="") as file:
        return {int(row["sxid"]): row["class"] for row in csv.DictReader(file)}


#: Xids about memory, a link or the bus: as tags on their lines.
_TAGS = {
    **dict.fromkeys((48, 63, 64, 92, 94, 95, 140, 171, 172), "gpu.ecc"), **dict.fromkeys((74, *range(144, 151), 155), "gpu.nvlink"),
    79: "gpu.fallen_off_bus",
}  # fmt: skip


def described(code: int) -> dict[str, str]:
    """Entities added to a line with that Xid: ``xid_class`` and ``xid_action``; empty for an unlisted code."""
    found = xids().get(code)
    if found is None:
        return {}
    return {"xid_class": found.kind} | ({"xid_action": found.action} if found.action else {})


def tag_of(code: int) -> str | None:
    """``gpu.ecc``, ``gpu.nvlink``, ``gpu.fallen_off_bus``, ``unknown_code``, or None."""
    return _TAGS.get(code) or (None if code in xids() else "unknown_code")
