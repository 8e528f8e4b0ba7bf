"""Where the records of accounting, slurmctld and its completion plugins contradict each other about one run.

Gaps of one source are filled by another (``runs``); only values that cannot both be true are contradictions. Slurm itself
writes some values in several ways, measured on real clusters:

- ``sacct`` prints exit codes without their high bit: its 11 is jobcomp's 139, and 0:11 of the step;
- for runs that Slurm ended (NODE_FAIL, TIMEOUT, CANCELLED), slurmctld keeps 0:15 where slurmdbd has 0:0;
- a record that was written while the run was active does not know its end;
- times differ by a second, and by whole quarters of an hour if a source has another zone;
- what slurmctld calls requeued is NODE_FAIL or PREEMPTED in accounting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any

from correlator.gather.run_endings import SAME_START_S
from parsers.hostlist import fold
from parsers.job_states import MAY_RUN_AGAIN, OPEN, OWN_CODE, Phase, phase_of, same_end

#: Sources that record a run as a whole. Hooks see it from one node, and lines are no records.
RECORDS = frozenset({"sacct", "sacct_json", "slurmrestd", "jobcomp", "jobcomp_json", "scontrol", "squeue"})

#: Zones differ by whole multiples of this, seconds.
_ZONE_STEP_S = 900.0

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Contradiction:
    """One thing about a run that sources tell differently: each value in words, and the sources that tell it."""

    about: str
    says: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(sorted({source for _, whose in self.says for source in whose}))

    def __str__(self) -> str:
        return f"{self.about}: " + "; ".join(f"{' and '.join(sources)}: {value}" for value, sources in self.says)


def contradictions(rows: Iterable[Row]) -> list[Contradiction]:
    """What the records about one run tell differently. The order of rows and repeated rows change nothing."""
    ended = [row for row in rows if row.get("source") in RECORDS and row.get("state", "") not in OPEN]
    if len({row["source"] for row in ended}) < 2 or _are_alike(ended):
        return []
    return [found for part in _PARTS if (found := _of(part, ended)) is not None]


#: What is compared. Nearly all records of one run are the same in it.
_COMPARED = ("state", "exit_code", "exit_signal", "start", "end", "nodes")


def _are_alike(ended: list[Row]) -> bool:
    one, *others = ended
    return all(row.get(name) == one.get(name) for row in others for name in _COMPARED)


@dataclass(frozen=True)
class _Part:
    """``value``: None if a row does not tell it; ``agree``: whether two rows' values can both be true."""

    about: str
    value: Callable[[Row], Any]
    agree: Callable[[Row, Row], bool]
    words: Callable[[Any], str]


def _of(part: _Part, ended: list[Row]) -> Contradiction | None:
    by_source: dict[str, list[Row]] = {}
    for row in ended:
        if part.value(row) is not None:
            by_source.setdefault(row["source"], []).append(row)
    sources = sorted(by_source)
    # A source may correct itself later: it contradicts another one only if none of its records agrees.
    if not any(
        not any(part.agree(a, b) for a in by_source[one] for b in by_source[other])
        for place, one in enumerate(sources) for other in sources[place + 1 :]
    ):  # fmt: skip
        return None
    says: dict[str, set[str]] = {}
    for source in sources:
        for row in by_source[source]:
            says.setdefault(part.words(part.value(row)), set()).add(source)
    return Contradiction(
        part.about, tuple(sorted(((v, tuple(sorted(whose))) for v, whose in says.items()), key=itemgetter(1, 0)))
    )


def _same_state(one: Row, other: Row) -> bool:
    ours, theirs = one["state"], other["state"]
    if same_end(ours) == same_end(theirs):
        return True
    return any(phase_of(a) is Phase.REQUEUED and b in MAY_RUN_AGAIN for a, b in ((ours, theirs), (theirs, ours)))


def _code(row: Row) -> tuple[int, int] | None:
    code = row.get("exit_code")
    return None if code is None or row.get("state") not in OWN_CODE else (int(code), int(row.get("exit_signal") or 0))


def _same_code(one: Row, other: Row) -> bool:
    ours, theirs = _code(one), _code(other)
    assert ours is not None and theirs is not None
    return (ours[1] or ours[0] & 0x7F) == (theirs[1] or theirs[0] & 0x7F)


def _same_time(name: str, beside: str) -> Callable[[Row, Row], bool]:
    """Whether two times are the same, or moved by a zone as ``beside`` is."""

    def agree(one: Row, other: Row) -> bool:
        gap = float((one[name] - other[name]).total_seconds())
        if abs(gap) <= SAME_START_S:
            return True
        steps = round(gap / _ZONE_STEP_S)
        if not steps or abs(gap - steps * _ZONE_STEP_S) > SAME_START_S or beside not in one or beside not in other:
            return False
        moved = float((one[beside] - other[beside]).total_seconds())
        return abs(moved - gap) <= SAME_START_S

    return agree


def _in_words(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


_PARTS = (
    _Part("state", lambda row: row.get("state"), _same_state, str),
    _Part("exit code", _code, _same_code, lambda code: f"{code[0]}:{code[1]}"),
    _Part("start", lambda row: row.get("start"), _same_time("start", "end"), _in_words),
    _Part("end", lambda row: row.get("end"), _same_time("end", "start"), _in_words),
    _Part("nodes", lambda row: row.get("nodes") or None, lambda a, b: set(a["nodes"]) == set(b["nodes"]), lambda nodes: fold(sorted(nodes))),
)  # fmt: skip
