"""The output of ``dcgmi``: ``diag``, ``health --check`` and ``dmon``, as metrics.

``dcgm_diag_pass`` is 1, 0 or absent (skipped) per test and GPU (a failed test is also ``gpu.driver_error``);
``dcgm_health`` is 0 healthy, 1 warning, 2 failure per GPU and subsystem; a column of dmon is ``dcgm_dmon_<column>``.
"""

from __future__ import annotations

import json
import re
from datetime import datetime

from parsers.documents.document import Gathered, Line, StatedEvent, of_lines

_ROW = re.compile(r"\|\s*(?P<left>[^|]*?)\s*\|\s*(?P<right>[^|]*?)\s*\|?\s*$")
_GPU = re.compile(r"GPU(?: ID)?:? ?(?P<gpu>\d+)")
_HEALTH = {"healthy": 0.0, "warning": 1.0, "failure": 2.0, "fail": 2.0}
_OUTCOME = re.compile(r"(?P<word>Pass|Fail|Warn|Skip)\b(?: - (?P<whom>.*))?", re.IGNORECASE)
_TARGETS = re.compile(r"GPUs?:? ?(?P<gpus>[\d, ]+)", re.IGNORECASE)


def _add(gathered: Gathered, time: datetime | None, metric: str, value: float, gpu: str | None, **labels: str) -> None:
    gathered.add("metrics", {
        "time": time, "host": gathered.origin.host, "metric": metric, "value": value, "device": gpu,
        "labels": json.dumps(labels | ({"gpu": gpu} if gpu else {}), sort_keys=True) or None,
    })  # fmt: skip


#: DCGM 4 gives each entity a row of its own below its test's.
_ENTITY = re.compile(r"GPU ?(?P<gpu>\d+): (?P<word>Pass|Fail|Warn|Skip)\b", re.IGNORECASE)


def _read_diag(gathered: Gathered, lines: list[Line]) -> None:
    time = gathered.time
    test = ""
    for line in lines:
        row = _ROW.match(line.text)
        test = row["left"].lstrip("-> ") if row and row["left"] else test
        entity = _ENTITY.match(row["right"]) if row and not row["left"] else None
        outcome = entity or (_OUTCOME.match(row["right"]) if row else None)
        word = outcome["word"].lower() if outcome else "skip"
        if outcome is None or word == "skip":
            gathered.keep(line, time)
            continue
        whom = None if entity else _TARGETS.match(outcome["whom"] or "")
        gpus = [entity["gpu"]] if entity else re.findall(r"\d+", whom["gpus"]) if whom else [None]
        gathered.keep(line, time, stated=_failed(test, gpus[0]) if word == "fail" else None)
        for gpu in gpus:
            _add(gathered, time, "dcgm_diag_pass", float(word == "pass"), gpu, test=test)


def _failed(test: str, gpu: str | None) -> StatedEvent:
    return StatedEvent(
        "gpu.driver_error",
        {"check": test.lower(), "gpu": int(gpu) if gpu else None, "reason": "dcgmi diag: Fail"},
        "error",
    )


def _read_health(gathered: Gathered, lines: list[Line]) -> None:
    time = gathered.time
    gpu: str | None = None
    for line in lines:
        gathered.keep(line, time)
        row = _ROW.match(line.text)
        if row is None:
            continue
        named = _GPU.search(row["left"])
        gpu = named["gpu"] if named else gpu
        state = next((value for word, value in _HEALTH.items() if row["right"].lower().startswith(word)), None)
        if state is None:
            continue
        if row["left"].lower().startswith("overall"):
            _add(gathered, time, "dcgm_health", state, None, subsystem="overall")
        else:
            _add(
                gathered,
                time,
                "dcgm_health",
                state,
                gpu,
                subsystem="all" if named else row["left"].strip("-> ").lower(),
            )


def _read_dmon(gathered: Gathered, lines: list[Line]) -> None:
    time = gathered.time
    names: list[str] = []
    for line in lines:
        gathered.keep(line, time)
        words = line.text.lstrip("#").split()
        if line.text.startswith("#") and words and words[0] == "Entity":
            names = words[1:]
        elif words[:1] == ["GPU"] and len(words) == len(names) + 2 and words[1].isdigit():
            for name, text in zip(names, words[2:], strict=True):
                if re.fullmatch(r"-?\d+(?:\.\d+)?", text):
                    _add(gathered, time, f"dcgm_dmon_{name.lower()}", float(text), words[1])


DOCUMENT = of_lines({"dcgm_diag": _read_diag, "dcgm_health": _read_health, "dcgm_dmon": _read_dmon})
