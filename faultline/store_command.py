"""``faultline store``: makes a store, brings it to this version, says what it holds and how large it is, and writes its
file anew without what is free in it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from faultline.failure import CommandError
from faultline.options import ConfigFile, Data

VERBS = ("init", "migrate", "compact", "info")
FORMATS = ("table", "json")


def store(
    verb: Annotated[str, typer.Argument(metavar="VERB", help="init, migrate, compact or info.")],
    data: Data = None,
    config: ConfigFile = None,
    format: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
    engine: Annotated[
        str, typer.Option("--engine", help="The engine of init, or to move to: duckdb is the only one.")
    ] = "duckdb",
) -> int:
    """Make a store, bring it to this version, shrink its file, or print sizes. The service must not be running."""
    from faultline.config import load
    from faultline.meant import meant

    _refuse_engine(engine)
    for value, allowed, what in ((verb, VERBS, "store"), (format, FORMATS, "--format")):
        if value not in allowed:
            raise CommandError(f"{what} {value}: unknown; one of {', '.join(allowed)}{meant(value, allowed)}")
    folder = data or load(config).data
    found = {"init": _init, "migrate": _migrate, "compact": _compact, "info": _info}[verb](folder)
    if format == "json":
        print(json.dumps(found, indent=1, sort_keys=True))
    elif verb == "info":
        _print(found)
    elif verb in ("init", "migrate"):
        _print_schema(folder, found)
    else:
        freed = found["before"] - found["after"]
        print(f"compacted {folder}: {found['before']:,} bytes before, {found['after']:,} after, {freed:,} freed")
    return 0


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: faultline archive --config /etc/faultline/faultline.toml --verify")(archive)
    app.command(epilog="Example: faultline store info --data /var/lib/faultline")(store)


def archive(
    config: ConfigFile = None,
    data: Data = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all archived files and compare their digests.")
    ] = False,
    confirm_clock: Annotated[
        bool, typer.Option("--confirm-clock", help="The clock is right, though it jumped: drop what is too old by it.")
    ] = False,
    without_log: Annotated[
        bool,
        typer.Option("--without-log", help="Set a damaged write-ahead log aside and go on from the last checkpoint."),
    ] = False,
) -> int:
    """Close days and drop old ones now, as the service does every hour; the service must not be running."""
    from faultline.upkeep import run as keep_up

    return keep_up(config, data, verify=verify, confirm_clock=confirm_clock, without_log=without_log)


def _refuse_engine(engine: str) -> None:
    from store import ENGINES

    if engine not in ENGINES:
        raise CommandError(
            f"--engine {engine}: this version has one engine, {next(iter(ENGINES))}: there is none to move a store to; leave --engine out"
        )


def _init(folder: Path) -> dict[str, Any]:
    """Makes a store in an empty or new folder; changes nothing if one of this version is there."""
    from store import is_store

    try:
        others = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    except OSError as error:
        raise CommandError(f"{folder}: cannot be read: {error.strerror}; give another folder with --data") from error
    if others and not is_store(folder):
        raise CommandError(f"{folder}: is not empty ({others[0]}) and holds no store; give an empty folder with --data")
    return _brought_up(folder, "init")


def _migrate(folder: Path) -> dict[str, Any]:
    from store import is_store

    if not is_store(folder):
        raise CommandError(f"{folder}: no store here; give its folder with --data, or make one: faultline store init")
    return _brought_up(folder, "migrate")


def _brought_up(folder: Path, verb: str) -> dict[str, Any]:
    from faultline import private
    from store import migrate
    from store.errors import StoreError

    for warning in private.begin(folder):
        print(f"faultline: {warning}", file=sys.stderr)
    try:
        return vars(migrate(folder))
    except StoreError as error:
        raise _refused(folder, error, verb) from error
    except OSError as error:
        raise CommandError(f"{folder}: cannot be made or opened: {error.strerror}") from error


def _print_schema(folder: Path, found: dict[str, Any]) -> None:
    added = found["added"]
    if not added and found["before"] == found["after"]:
        print(f"{folder}: a store of schema {found['after']}, as this version has it; nothing to do")
        return
    tables = sum(name.startswith("table ") for name in added)
    if found["before"] is None and tables:
        print(f"{folder}: made a store of schema {found['after']} in DuckDB, with {tables} tables")
        return
    print(
        f"{folder}: schema {found['before'] or 'without a number'} is schema {found['after']} now, {len(added)} additions"
    )
    for name in added:
        print(f"  {name}")


def _info(folder: Path) -> dict[str, Any]:
    from store import open_store, sizes
    from store.errors import StoreError

    try:
        with open_store(folder, read_only=True) as opened:
            return dict(sizes(opened))
    except StoreError as error:
        raise _refused(folder, error, "info") from error


def _compact(folder: Path) -> dict[str, Any]:
    from store import compact, is_store
    from store.errors import StoreError

    if not is_store(folder):
        raise CommandError(f"{folder}: no store here; give its folder with --data")
    try:
        return vars(compact(folder))
    except StoreError as error:
        raise _refused(folder, error, "compact") from error


def _refused(folder: Path, error: Exception, verb: str) -> CommandError:
    from store.errors import StoreHeld

    if not isinstance(error, StoreHeld):
        return CommandError(str(error))
    holder = f"the service at {error.address}" if error.address else "another process"
    return CommandError(
        f"{folder}: the store is held by {holder}; stop it, run 'faultline store {verb} --data {folder}', and start it again"
    )


def _print(found: dict[str, Any]) -> None:
    from faultline import terminal

    print(f"store    {found['folder']}")
    print(f"engine   {found['engine']}, schema {found['schema']} (this version knows {found['known_schema']})")
    terminal.table(
        ["table", "kind", "rows", "bytes"],
        [[row["table"], row["kind"], row["rows"], row["bytes"]] for row in found["tables"]],
        right=("rows", "bytes"),
    )
    for kind, size in found["bytes"].items():
        print(f"{kind:18}{size:>18,} bytes")
    lines = found["lines"]
    if lines["all"]:
        print(f"{'text filters':18}{100 * found['filtered']:>17.1f} % of {lines['all']:,} lines")
        ratio = found["bytes_per_raw_byte"]
        print(f"{'a raw byte takes':18}{ratio:>18.3f} bytes on disk (lines take {found['raw_bytes']:,}, estimated)")
