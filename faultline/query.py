"""``query`` and ``why``: run a query, print its answer, return a truthful exit code."""

from __future__ import annotations

import difflib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faultline import why_remote, why_text
from faultline.backends import Backend, Remote, choose
from faultline.failure import CommandError
from faultline.why_remote import named_run
from store.run_names import parted


@dataclass(frozen=True)
class Options:
    """The options of the command line beside the query. ``timeout_s`` None means no timeout."""

    data: Path | None
    server: str | None
    form: str
    parameters: tuple[str, ...] = ()
    max_rows: int | None = None
    timeout_s: float | None = None
    explain: bool = False


def query_text(kql: str | None, file: Path | None, saved_name: str | None) -> str:
    """The query: from the argument, a file, the library, or standard input (``-``, or no argument and a pipe)."""
    given = [source for source in (kql, file, saved_name) if source is not None]
    if len(given) > 1:
        raise CommandError("give one of: a query, --file FILE, --saved NAME")
    if saved_name is not None:
        from queries import saved

        try:
            return saved.load(saved_name).text
        except KeyError as error:
            near = difflib.get_close_matches(saved_name, saved.names(), n=1, cutoff=0.5)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise CommandError(
                f"--saved {saved_name}: no such query; 'faultline query --list' names them{meant}"
            ) from error
    if file is not None and str(file) != "-":
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if kql is not None and kql != "-":
        return kql
    if not given and sys.stdin.isatty():
        raise CommandError("give a query, --file FILE with one, --saved NAME, or pipe one in")
    text = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not text.strip():
        raise CommandError("standard input holds no query; give one, --file FILE or --saved NAME")
    return text


def ask(text: str, options: Options) -> int:
    """Runs a query and prints the answers of its tabular statements, in order."""
    from faultline import query_history
    from queries import kql

    values: dict[str, Any] = {}
    for item in options.parameters:
        name, equals, value = item.partition("=")
        if not equals:
            raise CommandError(f"--parameter {item}: write NAME=VALUE")
        values[name] = value
    try:
        backend = choose(options.data, options.server)
        try:
            if options.explain:
                print(backend.explain(text, values), end="")
                return 0
            answer = backend.query(text, values, options.max_rows, options.timeout_s)
        finally:
            backend.close()
    except kql.KqlError as error:
        hint = f"to run the queries of this file: --file {text}" if _is_file(text) else ""
        reason = str(error)
        if not sys.stderr.isatty():  # one line for programs; people also see the position
            reason, hint = reason.split("\n")[0], f"; {hint}" if hint else ""
        elif hint:
            hint = f"\n{hint}"
        sys.stderr.write(f"faultline: {reason}{hint}\n")
        return 2
    query_history.keep(text, answer.elapsed_ms, len(answer.rows))
    _print([*answer.others, answer], options.form)
    return 0


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # a query is longer than any file name
        return False


def _print(answers: list[Any], form: str) -> None:
    from faultline.printing import exact, write_exact
    from queries.kql import format as printing

    if form == "parquet" and len(answers) > 1:
        sys.stderr.write("faultline: parquet holds one table; the last statement's is written\n")
        answers = answers[-1:]
    for place, answer in enumerate(answers):
        shown = printing.render(answer, form)
        if isinstance(shown, bytes):
            sys.stdout.buffer.write(shown)
        elif form == "table":  # its cells are escaped, its rules are ours
            exact(sys.stdout).write(("\n" if place else "") + shown)
        else:
            write_exact(("\n" if place and form == "csv" else "") + shown)
        if answer.truncated:
            sys.stderr.write(f"faultline: truncated after {len(answer.rows)} rows; raise --max-rows\n")


def list_saved() -> None:
    """The library, one line each."""
    from queries import saved

    for name in saved.names():
        query = saved.load(name)
        print(f"{name}\t{query.title}\t{query.parameters}")


def show_history() -> None:
    """Prints earlier queries, oldest first."""
    from faultline import query_history

    for entry in query_history.entries():
        print(f"{entry.get('time', '')}\t{entry.get('rows', '')}\t{' '.join(str(entry['query']).split())}")


def explain_job(backend: Backend, key: str, form: str) -> int:
    """Exit 0 with a verdict, 1 if the job ended well or its verdict is unknown, 2 if there is no such job."""
    from faultline import terminal

    if isinstance(backend, Remote):
        return why_remote.explain(backend.service, key, form, terminal.Styled())
    key = named_run(key)
    found = backend.result()
    key = backend.run_named(key) or key
    verdict = found["verdicts"].get(key)
    if verdict is None:
        runs = [r for r in backend.run_keys() if r["run_key"] == key or r["run_key"].split("#")[0].split("@")[0] == key]
        others = [k for k in found["verdicts"] if k.split("#")[0].split("@")[0] == key.split("#")[0]]
        if others and not any(r["run_key"] == key for r in runs):
            raise CommandError(f"job {key}: no such run; there are verdicts on {', '.join(others)}")
        if not runs:
            known = {str(r["run_key"]) for r in backend.run_keys()} | set(found["verdicts"])
            near = difflib.get_close_matches(key, sorted(known), n=3, cutoff=0.7)
            meant = f"did you mean {', '.join(near)}?" if near else "was its accounting or slurmctld.log ingested?"
            raise CommandError(f"job {key}: not known to this store; {meant}")
        slowed = backend.slowed(key) if any(r["run_key"] == key for r in runs) else []
        if form == "json":
            print(json.dumps({"job_id": key, "verdict": None, "runs": runs} | ({"slowed": slowed} if slowed else {})))
        else:
            earlier = f" For the run that did not end well: faultline why {others[-1]}" if others else ""
            print(" ".join([why_text.without_verdict(key, runs) + earlier, *why_text.slowed_in_words(slowed)]))
        return 1
    incident = next((i for i in found["incidents"] if i["id"] == verdict["incident_id"]), None)
    backend.attach_blocks(key, verdict["evidence"])
    differs, slowed = backend.since_last_good(key), backend.slowed(key)
    if form == "json":
        print(why_remote.as_json(key, verdict, incident, differs, slowed))
    else:
        terminal.why(key, verdict, incident, differs, slowed)
    own = parted(key)[0]
    if others := [other for other in found["verdicts"] if other != key and parted(other)[0] == own]:
        sys.stderr.write(
            f"faultline: this is the run of cluster {verdict['cluster'] or 'unknown'}; there is also {', '.join(others)}\n"
        )
    return 0
