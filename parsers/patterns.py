"""The catalogue: which text means which event, as data (``parsers/catalogue/*.toml`` and a site's own files).

A file is a list of ``[[pattern]]`` tables:

* ``id`` (unique), ``event`` (taxonomy, or ``site.*``), ``literal`` (one or more lower-case texts, any of which must be
  in the message before the regex is tried), ``regex`` (one or more, any of which must match; named groups become
  entities)
* optional: ``unless`` (a regex that must not match), ``sources``, ``severity``, ``set`` (fixed entities), ``priority``
  (larger is tried first; 50), ``advice``, ``reference`` (where the text comes from), ``after`` (one or more regexes for
  the writer's own words that may come between the head of a message and the match: parsers/quoting.py)
* ``example`` / ``counter``: messages that must / must not match; an example may be a table with ``line``, ``entities``
  and ``source``.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

from parsers import authority, extensions, quoting
from parsers.entities import tidy
from parsers.formats.base import SEVERITIES
from parsers.pattern import BUILT_IN, GROUPS, Example, Pattern

_KEYS = {
    "id", "event", "literal", "regex", "unless", "sources", "severity", "set", "priority", "advice", "reference",
    "example", "counter", "tags", "after",
}  # fmt: skip
_EVENT = re.compile(r"[a-z]+\.[a-z0-9_.]+|other")
#: audit, sudo, cron and ansible repeat commands in the system's log: words in them report nothing.
_COMMANDS = r"^(?:type=)?(?:EXECVE argc=|PROCTITLE )| ; PWD=.* ; COMMAND=|^\(\S+\) CMD \(|^Invoked with \w+="
#: Source text shown by a script or a traceback: a raised exception is printed below it, and a traced command reports
#: nothing.
_SOURCE_TEXT = r"^\s*raise [A-Za-z_.]+\(|^\+{1,3} [a-z]|^\s*echo [\"']|^\s*#(?: |!/)"


#: The head of a group that takes a job's id, and what may follow the id since Slurm 25.11: the job's unique id.
_JOB_GROUP, _UNIQUE_ID = "(?P<job>", r"(?: SLUID=\w+)?"
#: An escape, a set of characters, or one character of a regex.
_TOKEN = re.compile(r"(?s)\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.")

#: Length of the beginnings by which literals are found.
_BEGINNING = 3


@dataclass(frozen=True)
class Problem:
    """A problem in a catalogue file: the file, the entry, and the reason."""

    file: str
    entry: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.entry}: {self.reason}"


def meaning(means: Iterable[tuple[Pattern, dict[str, Any]]], of_job: bool) -> tuple[Pattern, dict[str, Any]] | None:
    """The meaning of a line that matches the entries of ``means``, in order of precedence: the first one; for job
    output, the first one that a job may report, with tags for what it claims before that."""
    claimed: tuple[Pattern, dict[str, Any]] | None = None
    for entry, entities in means:
        if entry.of_job or not of_job:
            return (authority.beside(entry, claimed[0]) if claimed else entry), entities
        claimed = claimed or (entry, entities)
    return None if claimed is None else (claimed[0].claim, {})


@dataclass
class Catalogue:
    """All entries in order of precedence, and the problems of the files."""

    entries: tuple[Pattern, ...]
    problems: list[Problem] = field(default_factory=list)
    #: Files of installed packages -> the name that messages give their entry points.
    brought: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def literals(self) -> list[str]:
        """All distinct literals."""
        return sorted({literal for entry in self.entries for literal in entry.literals})

    def match(self, message: str, source: str | None, of_job: bool = False) -> tuple[Pattern, dict[str, Any]] | None:
        """The first entry that matches ``message``, and its tidied entities. For one message; parsers/index.py is for
        many. ``of_job``: it is known job output."""
        means = (
            (entry, tidy(found))
            for entry in self._with_literal_in(message)
            if (found := quoting.match(entry, message, source)) is not None
        )
        return meaning(means, of_job)

    @cached_property
    def _by_beginning(self) -> dict[str, list[tuple[str, int]]]:
        """Literals and the places of their entries, by the literal's first ``_BEGINNING`` letters."""
        found: dict[str, list[tuple[str, int]]] = {}
        for place, entry in enumerate(self.entries):
            for literal in entry.literals:
                found.setdefault(literal[:_BEGINNING], []).append((literal, place))
        return found

    @cached_property
    def _shorter(self) -> set[str]:
        """Literals that are shorter than a beginning."""
        return {beginning for beginning in self._by_beginning if len(beginning) < _BEGINNING}

    def _with_literal_in(self, message: str) -> list[Pattern]:
        """The entries with a literal in ``message``, in order: a few, found without trying the literals of all."""
        lower = message.lower()
        beginnings = {lower[n : n + _BEGINNING] for n in range(len(lower))}  # the last ones are shorter
        places = {
            place
            for beginning in (self._by_beginning.keys() & beginnings) | self._shorter
            for literal, place in self._by_beginning[beginning]
            if literal in lower
        }
        return [self.entries[place] for place in sorted(places)]

    def of_other_sources(self, message: str, source: str | None) -> list[Pattern]:
        """Entries that would match ``message`` if its source were not ``source``."""
        lower = message.lower()
        return [
            entry for entry in self.entries
            if not entry.fits(source) and any(literal in lower for literal in entry.literals)
            and quoting.match(entry, message, min(entry.sources)) is not None
        ]  # fmt: skip

    def check(self) -> list[Problem]:
        """Every problem of the catalogue: files that do not parse, and examples that fail. Problems that a package causes are
        logged instead: the site cannot fix them, and its own files must not wait for that."""
        problems = list(self.problems)
        for entry in self.entries:
            for example in entry.examples:
                reason, taker = self._why_not(entry, example)
                if reason:
                    self._note(Problem(entry.file, entry.id, reason), taker, problems)
            for text in entry.counters:
                if (
                    any(literal in text.lower() for literal in entry.literals)
                    and quoting.match(entry, text, None) is not None
                ):
                    self._note(Problem(entry.file, entry.id, f"counter-example matches: {text!r}"), entry, problems)
        return problems

    def _note(self, problem: Problem, taker: Pattern, problems: list[Problem]) -> None:
        called = self.brought.get(problem.file) or self.brought.get(taker.file)
        if called is None:
            problems.append(problem)
        else:
            extensions.warn_once(f"{called}: {problem}")

    def _why_not(self, entry: Pattern, example: Example) -> tuple[str | None, Pattern]:
        """Why an example does not hold, and the pattern whose fault that is."""
        source = example.source or (sorted(entry.sources)[0] if entry.sources else None)
        if not any(literal in example.text.lower() for literal in entry.literals):
            return f"example has none of the literals: {example.text!r}", entry
        if quoting.match(entry, example.text, source) is None:
            return f"example does not match the regex: {example.text!r}", entry
        best = self.match(example.text, source)
        assert best is not None
        if best[0].event != entry.event:
            return f"example is taken by {best[0].id} ({best[0].event}): {example.text!r}", best[0]
        wanted, got = example.entities, best[1]
        for name, value in wanted.items():
            if got.get(name) != value:
                there = "" if name in got else f"; it gives {', '.join(sorted(got)) or 'no entities'}"
                return f"example gives {name}={got.get(name)!r}, not {value!r}: {example.text!r}{there}", best[0]
        return None, entry


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str) for item in items):
        raise ValueError("must be a text or a list of texts")
    return list(items)


def _examples(value: Any) -> list[Example]:
    items = value if isinstance(value, list) else [value] if value is not None else []
    out = []
    for item in items:
        if isinstance(item, str):
            out.append(Example(item))
        elif isinstance(item, dict) and isinstance(item.get("line"), str):
            if unknown := sorted(set(item) - {"line", "source", "entities"}):
                raise ValueError(f"example has an unknown key {unknown[0]!r}; known: line, source, entities")
            out.append(Example(item["line"], dict(item.get("entities", {})), item.get("source")))
        else:
            raise ValueError("example must be a text or a table with line and entities")
    return out


def _end_of_group(text: str, start: int) -> int:
    """The position after the group that begins at ``start``."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        depth += (token[0] == "(") - (token[0] == ")")
        if not depth:
            return token.end()
    raise ValueError(f"a group has no end: {text[start:]!r}")


def _with_unique_id(text: str) -> str:
    """The regex of a message with ``JobId=``, which also matches where Slurm adds the job's unique id. Any such message may
    have it (``%pI`` in its formats), so it is in no regex of the catalogue."""
    if "JobId=" not in text:
        return text
    done, position = "", 0
    while (start := text.find(_JOB_GROUP, position)) >= 0:
        end = _end_of_group(text, start)
        optional = text[end : end + 1] == "?"
        done += text[position:end] + ("?" if optional else "") + _UNIQUE_ID
        position = end + optional
    return done + text[position:]


def _compile(texts: list[str]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(text, re.IGNORECASE) for text in texts)


def _entry(table: dict[str, Any], file: str) -> Pattern:
    """One table -> Pattern. Raises ValueError or re.error with the reason."""
    unknown = sorted(set(table) - _KEYS)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}")
    event = table.get("event")
    if not isinstance(event, str) or not _EVENT.fullmatch(event):
        raise ValueError(
            f"event {event!r} is not of the form family.name: a family of letters a-z, a name of a-z, 0-9, _ and dots"
        )
    literals, regexes = _texts(table.get("literal")), _texts(table.get("regex"))
    if not literals or not all(literals):
        raise ValueError("no literal")
    if any(literal != literal.lower() for literal in literals):
        raise ValueError("literal must be lower case")
    if not regexes:
        raise ValueError("no regex")
    sources = [name for source in _texts(table.get("sources")) for name in GROUPS.get(source, (source,))]
    severity = table.get("severity")
    if severity is not None and severity not in SEVERITIES:
        raise ValueError(f"there is no severity {severity!r}, but {', '.join(SEVERITIES)}")
    unless = table.get("unless")
    if Path(file).parent == BUILT_IN and (not sources or "syslog" in sources):  # a site may want its commands
        unless = f"{unless}|{_COMMANDS}" if unless else _COMMANDS
    if Path(file).parent == BUILT_IN and (not sources or "job_stdout" in sources):
        unless = f"{unless}|{_SOURCE_TEXT}" if unless else _SOURCE_TEXT
    after = "|".join(f"(?:{text})" for text in _texts(table.get("after")))
    if Path(file).parent == BUILT_IN and any(source in GROUPS["slurm"] for source in sources):
        regexes = [_with_unique_id(text) for text in regexes]
    examples = _examples(table.get("example"))
    if not examples:
        raise ValueError("no example")
    return Pattern(
        id=str(table["id"]), event=event, literals=tuple(literals), regexes=_compile(regexes),
        unless=re.compile(unless, re.IGNORECASE) if unless else None, sources=frozenset(sources),
        severity=severity, fixed=dict(table.get("set", {})), priority=int(table.get("priority", 50)),
        advice=table.get("advice"), reference=table.get("reference"), examples=tuple(examples),
        counters=tuple(_texts(table.get("counter"))), tags=tuple(_texts(table.get("tags"))), file=file,
        after=re.compile(after) if after else None,
    )  # fmt: skip


def _read(path: Path, seen: set[str], problems: list[Problem]) -> list[Pattern]:
    name = str(path)
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        problems.append(Problem(name, "-", str(error)))
        return []
    problems += [
        Problem(name, "-", f"unknown table {key!r}; known: [[pattern]]") for key in document if key != "pattern"
    ]
    tables = document.get("pattern", [])
    if not isinstance(tables, list):
        problems.append(Problem(name, "-", "patterns are written as [[pattern]]"))
        return []
    entries = []
    for number, table in enumerate(tables, 1):
        label = str(table.get("id") or f"entry {number}")
        if "id" not in table:
            problems.append(Problem(name, label, "no id"))
        elif label in seen:
            problems.append(Problem(name, label, "an entry of this id exists already"))
        else:
            seen.add(label)
            try:
                entries.append(_entry(table, name))
            except (ValueError, TypeError, re.error) as error:
                problems.append(
                    Problem(name, label, f"bad regex: {error}" if isinstance(error, re.error) else str(error))
                )
    return entries


def installed() -> list[tuple[str, list[Path]]]:
    """Pattern files of other packages, with the name of the entry point in messages: the group ``faultline.patterns``, each
    a list of paths."""
    return extensions.load("faultline.patterns", _paths)


def _paths(offered: object, extension: extensions.Extension) -> tuple[str, list[Path]]:
    if not isinstance(offered, (list, tuple)) or not all(isinstance(path, (str, Path)) for path in offered):
        raise TypeError(f"is of type {type(offered).__name__}, not a list of paths")
    return extension.called, [Path(path) for path in offered]


@cache  # compiling these 1,300 regexes takes half a second; they never change within a process
def _built_in() -> tuple[tuple[Pattern, ...], frozenset[str], tuple[Problem, ...]]:
    """The entries of the built-in files, their IDs, and the files' problems."""
    problems: list[Problem] = []
    seen: set[str] = set()
    entries = [entry for path in sorted(BUILT_IN.glob("*.toml")) for entry in _read(path, seen, problems)]
    return tuple(entries), frozenset(seen), tuple(problems)


def load(extra_files: Sequence[Path] = ()) -> Catalogue:
    """The built-in catalogue, that of installed packages and site files (or folders of ``*.toml``). Broken entries are
    skipped and reported by :meth:`Catalogue.check`, those of packages by the log. A site's entries are tried before
    built-in ones of the same priority."""
    built_in, names, found = _built_in()
    seen, problems = set(names), list(found)
    site: list[Pattern] = []
    brought: dict[str, str] = {}
    for called, paths in installed():
        broken: list[Problem] = []
        for file in _files(paths):
            site += _read(file, seen, broken)
            brought[str(file)] = called
        for problem in broken:
            extensions.warn_once(f"{called}: {problem}; it is left out")
    for file in _files(extra_files):
        site += _read(file, seen, problems)
    ranked = sorted([*site, *built_in], key=lambda entry: -entry.priority)
    return Catalogue(
        tuple(replace(entry, order=rank) for rank, entry in enumerate(ranked)), problems, brought
    )  # fmt: skip


def _files(paths: Iterable[Path]) -> Iterable[Path]:
    """The files among these, and those of the folders among them."""
    for path in paths:
        yield from sorted(path.glob("*.toml")) if path.is_dir() else [path]


def dumps(entities: dict[str, Any]) -> str | None:
    """Entities in stored form: JSON with sorted keys, null if there are none."""
    if not entities:
        return None
    form, names = _form(tuple(entities))
    return form % tuple([_WRITERS.get(type(entities[name]), _encoded)(entities[name]) for name in names])


class _Hole:
    """Placeholder for a value that is not known yet."""


_HOLE = _Hole()


def around(name: str, entities: dict[str, Any]) -> tuple[str, str]:
    """The output of :func:`dumps` before and after the value of ``name``, if it were added to ``entities``."""
    before, _, after = (dumps({**entities, name: _HOLE}) or "").partition("\0")  # JSON text never contains a NUL
    return before, after


@lru_cache(maxsize=4096)
def _form(names: tuple[str, ...]) -> tuple[str, list[str]]:
    """The format of an object with members of these names, and the names in its order: lines of one kind have the same
    ones."""
    ordered = sorted(names)
    members = [f"{_quoted(name)}: ".replace("%", "%%") + "%s" for name in ordered]
    return "{" + ", ".join(members) + "}", ordered


def _list(values: list[Any]) -> str:
    if len(values) == 1 and type(values[0]) is str:  # the node of a line
        return f"[{_quoted(values[0])}]"
    return _encoded(values)


def written(value: float) -> str:
    """A number as :func:`dumps` writes it."""
    return repr(value) if isfinite(value) else _encoded(value)


_quoted: Callable[[str], str] = json.encoder.encode_basestring
_encoded = json.JSONEncoder(sort_keys=True, ensure_ascii=False, default=str).encode
_WRITERS: dict[type, Callable[[Any], str]] = {
    str: _quoted,
    int: str,
    float: written,
    list: _list,
    _Hole: lambda _: "\0",
}
