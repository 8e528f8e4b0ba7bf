"""``faultline store``: what a store holds and how large it is, and its file written anew without what is free in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from faultline.failure import CommandError

VERBS = ("info", "compact")
FORMATS = ("table", "json")


def store(
    verb: Annotated[str, typer.Argument(metavar="VERB", help="info or compact.")],
    data: Annotated[Path | None, typer.Option("--data", help="The store's folder.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="The service's configuration (TOML).")] = None,
    format: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
) -> int:
    """Sizes and versions of a store; or shrink its file. The service must not be running."""
    from faultline.config import load
    from faultline.meant import meant

    for value, allowed, what in ((verb, VERBS, "store"), (format, FORMATS, "--format")):
        if value not in allowed:
            raise CommandError(f"{what} {value}: unknown; one of {', '.join(allowed)}{meant(value, allowed)}")
    folder = data or load(config).data
    found = _info(folder) if verb == "info" else _compact(folder)
    if format == "json":
        print(json.dumps(found, indent=1, sort_keys=True))
    elif verb == "info":
        _print(found)
    else:
        freed = found["before"] - found["after"]
        print(f"compacted {folder}: {found['before']:,} bytes before, {found['after']:,} after, {freed:,} freed")
    return 0


def _info(folder: Path) -> dict[str, Any]:
    from store import open_store, sizes
    from store.errors import StoreError

    try:
        with open_store(folder, read_only=True) as opened:
            return sizes(opened)
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
