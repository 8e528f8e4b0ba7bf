"""Requirements of edges about GPUs. Like those of ``registry.py``: None if one holds, else why it does not."""

from __future__ import annotations

import re

from correlator.facts.world import World
from correlator.model.attributes import CODE, FAMILY, WORDS
from correlator.model.nouns import Fact
from parsers.xid import xids


def hardware_xid(world: World, cause: Fact, effect: Fact) -> str | None:
    family = cause.attrs.get(FAMILY)
    return None if family == "hardware" else f"Xid {cause.attrs.get(CODE)} is of the {family} class"


#: NVIDIA's catalogue and the driver's own message (Xid 154) for a GPU that only a reboot of its machine recovers.
_REBOOT = re.compile(r"reboot", re.IGNORECASE)


def needs_reboot(world: World, cause: Fact, effect: Fact) -> str | None:
    code = cause.attrs.get(CODE)
    known = xids().get(int(code or 0))
    asked = known is not None and known.action == "RESTART_BM"
    if asked or any(_REBOOT.search(e.message) for e in cause.events):
        return None
    return f"Xid {code} needs no reboot"


def xid_74(world: World, cause: Fact, effect: Fact) -> str | None:
    return None if cause.attrs.get(CODE) == 74 else "not an NVLink error"


def not_xid_74(world: World, cause: Fact, effect: Fact) -> str | None:
    return None if cause.attrs.get(CODE) != 74 else "an NVLink error does not always kill"


def row_remapped(world: World, cause: Fact, effect: Fact) -> str | None:
    return None if cause.attrs.get(CODE) in (63, 64) else "not a row remapping"


def met_memory_error(world: World, cause: Fact, effect: Fact) -> str | None:
    words = (effect.attrs.get(WORDS) or {}).get("gpu", ())
    return None if any("ecc" in e.message.lower() for e in words) else "the run met no uncorrectable memory error"
