"""Attributes of facts that are read outside their kind's own file or folder: the name and type of each.

The TypedDicts of the kinds document what they mean. A test checks that both have the same types.
"""

from __future__ import annotations

from typing import Any

from correlator.model.attrs import Attr, attr
from correlator.model.nouns import Event, Fact

# -- what a fact reaches, and how it is known ----------------------------------------------------------------------------
DIFFERS: Attr[str] = attr("differs")
HOSTS: Attr[list[str]] = attr("hosts")
RUNS: Attr[list[str]] = attr("runs")
UNTIL: Attr[float] = attr("until")
INFERRED: Attr[bool] = attr("inferred")
NAMELESS: Attr[bool] = attr("nameless")
NOTICED: Attr[float] = attr("noticed")
PASSING: Attr[bool] = attr("passing")
REASON: Attr[str | None] = attr("reason")
SAID: Attr[bool] = attr("said")
UNENDED: Attr[bool] = attr("unended")
UNSAID: Attr[bool] = attr("unsaid")

# -- links and switches --------------------------------------------------------------------------------------------------
BONDED: Attr[bool] = attr("bonded")
ENDS: Attr[list[str]] = attr("ends")
END_UNSEEN: Attr[bool] = attr("end_unseen")
FAR_END_ONLY: Attr[bool] = attr("far_end_only")
LEGS: Attr[list[str]] = attr("legs")
LINKS: Attr[list[tuple[str | None, str | None]]] = attr("links")
PORT: Attr[str | None] = attr("port")
PROMOTED: Attr[str] = attr("promoted")
ROLE: Attr[str] = attr("role")
STAND_IN: Attr[str] = attr("stand_in")
SWITCH: Attr[str | None] = attr("switch")
TOKEN: Attr[str] = attr("token")
TREE_ONLY: Attr[bool] = attr("tree_only")
UNDER: Attr[list[str]] = attr("under")

# -- nodes ---------------------------------------------------------------------------------------------------------------
ASKED: Attr[str] = attr("asked")
BOOT: Attr[float | None] = attr("boot")
BOOTED: Attr[float | None] = attr("booted")
CLOCK: Attr[str] = attr("clock")
COMPONENT: Attr[str] = attr("component")
LAST_RESPONSE: Attr[float | None] = attr("last_response")
MAINTENANCE: Attr[bool] = attr("maintenance")
PLANNED: Attr[bool] = attr("planned")
POLLED: Attr[float] = attr("polled")
SILENT: Attr[bool] = attr("silent")
UNRESUMED: Attr[str | None] = attr("unresumed")

# -- GPUs and storage ----------------------------------------------------------------------------------------------------
CODE: Attr[int | None] = attr("code")
COOLING: Attr[str | None] = attr("cooling")
EVICTED: Attr[dict[str, float]] = attr("evicted")
FAMILY: Attr[str] = attr("family")
PROCESSORS: Attr[bool] = attr("processors")
READ_ONLY: Attr[bool] = attr("read_only")
SERVER: Attr[str | None] = attr("server")

# -- runs ----------------------------------------------------------------------------------------------------------------
ALONE: Attr[bool] = attr("alone")
BLAMED_CODE: Attr[list[Fact]] = attr("blamed_code")
BY_CONTROLLER: Attr[bool] = attr("by_controller")
ENVIRONMENT: Attr[list[Event]] = attr("environment")
EXIT_CODE: Attr[Any] = attr("exit_code")
FAILED_NODES: Attr[list[str]] = attr("failed_nodes")
LASTING: Attr[bool] = attr("lasting")
LAUNCH: Attr[list[Event]] = attr("launch")
LOST: Attr[float] = attr("lost")
MEMORY: Attr[list[object]] = attr("memory")
MEMORY_AGO: Attr[float] = attr("memory_ago")
OPENED: Attr[str] = attr("opened")
OUTPUT: Attr[list[Event]] = attr("output")
PATH: Attr[str] = attr("path")
RATIO: Attr[float] = attr("ratio")
REFUSED: Attr[bool | str] = attr("refused")
REVOKED: Attr[bool] = attr("revoked")
SIGNAL: Attr[Any] = attr("signal")
STARTED: Attr[bool] = attr("started")
SURE: Attr[float] = attr("sure")
TIMEOUT: Attr[float | None] = attr("timeout")
UID: Attr[Any] = attr("uid")
WHY: Attr[str] = attr("why")
WORDS: Attr[dict[str, list[Event]]] = attr("words")
