"""Saved queries: those of ``queries/library`` and a site's own, one file each with a header of comments that says what it
is for.

``// title:``, ``// description:``, ``// group:``, ``// parameters:`` (as in ``declare query_parameters``, or ``none``)
and ``// example:``. A site's file needs only ``// title:``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from queries.kql import syntax as ast
from queries.kql.errors import KqlError
from queries.kql.parser import parse

LIBRARY = Path(__file__).parent / "library"
_HEADER = re.compile(r"^// (title|description|group|parameters|example): *(.*)$", re.M)
#: The group of a site's query that names none.
SITE_GROUP = "This site"
#: Timespans of KQL that a value may be: 90s, 1.5h, 7d.
_TIMESPAN = re.compile(r"\d+(?:\.\d+)?(?:d|h|m|s|ms)")


@dataclass(frozen=True)
class Saved:
    """One saved query. ``file``: where it stands; ``group``: with which others it is listed."""

    name: str
    title: str
    description: str
    parameters: str
    example: str
    text: str
    group: str = SITE_GROUP
    file: Path | None = None


@dataclass(frozen=True)
class Problem:
    """What is wrong with a file of a site: the file, the line if one is known, the reason, and what to do."""

    file: Path
    line: int | None
    reason: str
    do: str

    def __str__(self) -> str:
        return f"{self.file}{f':{self.line}' if self.line else ''}: {self.reason}; {self.do}"


def problem_parts(error: KqlError) -> tuple[int | None, str, str]:
    """An error of a query as the parts of a problem: its line in the query, the reason, and what to do."""
    hint = error.suggestion or ""
    do = f"did you mean {hint}?" if hint and " " not in hint else hint or "correct the query"
    return (error.line if error.text else None), error.message.split("\n")[0], do


def faults(library: Mapping[str, Saved], validate: Callable[[str], object]) -> list[Problem]:
    """What is wrong with a site's queries. ``validate`` raises ``KqlError``."""
    out = []
    for one in library.values():
        if one.file is not None and one.file.parent != LIBRARY:
            try:
                validate(one.text)
            except KqlError as error:
                out.append(Problem(one.file, *problem_parts(error)))
    return out


def names() -> list[str]:
    """All built-in saved queries, by name."""
    return sorted(path.stem for path in LIBRARY.glob("*.kql"))


def load(name: str) -> Saved:
    """One built-in saved query. Raises ``KeyError`` if there is none of that name."""
    if name not in names():
        raise KeyError(name)
    return _read(LIBRARY / f"{name}.kql")


def library(folders: Sequence[Path] = ()) -> tuple[dict[str, Saved], list[Problem]]:
    """The built-in queries and those of a site's files or folders, by name, and what is wrong with the latter. The name
    of a built-in one is taken."""
    found = {name: load(name) for name in names()}
    problems: list[Problem] = []
    for path in files(folders, "*.kql"):
        try:
            one = _read(path)
        except (OSError, UnicodeDecodeError) as error:
            reason = f"cannot be read: {getattr(error, 'strerror', None) or error}"
            problems.append(Problem(path, None, reason, "correct the path, or its permissions"))
            continue
        if one.name in found:
            problems.append(
                Problem(path, None, f"the name {one.name!r} is taken by {found[one.name].file}", "rename the file")
            )
        else:
            found[one.name] = one
    return found, problems


def files(paths: Iterable[Path], pattern: str) -> list[Path]:
    """The files among the paths, and those in folders among them that match, by name."""
    return [
        file for path in map(Path, paths) for file in (sorted(path.glob(pattern)) if path.is_dir() else [path])
    ]  # fmt: skip


def _read(path: Path) -> Saved:
    return _parsed(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=1024)
def _parsed(path: Path, _changed_ns: int) -> Saved:
    text = path.read_text(encoding="utf-8")
    header = dict(_HEADER.findall(text))
    title = header.get("title") or path.stem.replace("_", " ").capitalize()
    shown = header.get("group") or SITE_GROUP
    described, parameters, example = (header.get(part, "") for part in ("description", "parameters", "example"))
    return Saved(path.stem, title, described, parameters, example, text, shown, path)


def parameters_of(text: str) -> list[ast.Parameter]:
    """What ``declare query_parameters`` of a query names. Raises ``KqlError``."""
    declared = [one for one in parse(text).statements if isinstance(one, ast.Declare)]
    return [parameter for one in declared for parameter in one.parameters]


def draws(text: str) -> bool:
    """Does the query end in ``render``? Not if it cannot be read."""
    try:
        last = parse(text).statements[-1]
    except (KqlError, IndexError):
        return False
    operators = last.operators if isinstance(last, ast.Pipeline) else ()
    return bool(operators) and getattr(operators[-1], "name", "") == "render"


def with_values(text: str, values: Mapping[str, Any]) -> str:
    """The query with these values as the defaults of its parameters, so that the text alone gives the same answer
    everywhere. Raises ``ValueError`` for a name that it does not declare or a value that the type cannot hold."""
    if not values:
        return text
    try:
        declared = {parameter.name: parameter for parameter in parameters_of(text)}
    except KqlError as error:
        raise ValueError(str(error).split("\n")[0]) from error
    for name in values:
        if name not in declared or declared[name].default is None:
            known = ", ".join(one.name for one in declared.values() if one.default is not None) or "none"
            raise ValueError(f"the query has no parameter {name!r} with a default; it has {known}")
    parts = sorted(
        ((one.default.span, _literal(one, values[one.name])) for one in declared.values() if one.default and one.name in values),
        key=lambda part: part[0].start, reverse=True,
    )  # fmt: skip
    for span, literal in parts:
        text = text[: span.start] + literal + text[span.end :]
    return text


def _literal(parameter: ast.Parameter, value: Any) -> str:
    """A value as KQL. Raises ``ValueError``."""
    kind, wrong = parameter.type, f"parameter {parameter.name!r}: {value!r} is no {parameter.type}"
    if kind == "string" and isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if kind == "timespan" and isinstance(value, str) and _TIMESPAN.fullmatch(value):
        return value
    if kind == "bool" and isinstance(value, bool):
        return str(value).lower()
    if kind in ("int", "long") and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if kind in ("real", "decimal") and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    raise ValueError(wrong)
