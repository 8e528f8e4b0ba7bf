"""``faultline backup``, ``verify`` and ``restore``: consistent copies of a store, made while a service runs on it.

A running service makes its copy itself: nobody else may open its database. It writes only into a folder that its own
account prepared for it (``faultline.backup_route``).
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from faultline.failure import CommandError
from faultline.named_path import named_path
from faultline.options import ConfigFile, Data

#: How long a service may take for a copy, in seconds.
PATIENCE_S = 24 * 3600.0
ROUTE = "/api/v1/backup"
#: The empty file in a folder for a copy which shows that whoever asks the service may write there, too.
PROOF = ".faultline-backup-"

Dest = Annotated[Path, typer.Argument(parser=named_path, metavar="DEST", help="The copy's folder.")]
Server = Annotated[
    str | None, typer.Option("--server", help="The service (or FAULTLINE_SERVER); it must run on this machine.")
]


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: faultline backup /backup/faultline-2026-11-29")(backup)
    app.command(epilog="Example: faultline verify /backup/faultline-2026-11-29")(verify)
    app.command(epilog="Example: faultline restore /backup/faultline-2026-11-29 --data /var/lib/faultline")(restore)


def backup(dest: Dest, data: Data = None, server: Server = None, config: ConfigFile = None) -> None:
    """Copy a store, also of a running service, into an empty or new folder."""
    from faultline import backends
    from faultline.config import load
    from faultline.defaults import DEFAULT_LISTEN
    from faultline.remote import Service

    if data is not None and server is not None:
        raise CommandError("--data and --server exclude each other: one copies a store, the other asks a service")
    dest = dest.absolute()
    asked = server or (None if data or config else os.environ.get("FAULTLINE_SERVER"))
    if asked:
        found = _by_service(Service(asked, patience_s=PATIENCE_S), dest)
    elif data is None and config is None and backends.is_listening(DEFAULT_LISTEN):
        default = f"http://{DEFAULT_LISTEN}"
        found = _by_service(Service(default, named=False, patience_s=PATIENCE_S), dest)
    else:
        settings = load(config)
        found = _of_folder(data or settings.data, settings.ingest.spool, dest)
    print(
        f"{dest}: {sum(rows for rows, _ in found['tables'].values()):,} rows in {len(found['tables'])} tables, "
        f"{len(found['files'])} files, {sum(size for size, _ in found['files'].values()):,} bytes"
    )
    for name in found["absent"]:
        print(f"MISSING  {name}: lines that waited for their segment; the store names this file, and it is not there")
    if waits := sum(size for name, (size, _) in found["files"].items() if name.startswith("spool/")):
        print(f"{waits:,} bytes of these are files of the spool, with what was received and is not stored yet")


def verify(dest: Dest) -> int:
    """Compare a copy with the digests that were written with it; exit 1 names what differs."""
    from store import read_copy, verify_copy
    from store.errors import StoreError

    if not dest.is_dir():
        raise CommandError(f"{dest}: no such folder; give one that 'faultline backup' made")
    try:
        copy = read_copy(dest)
    except StoreError as error:
        print(f"WRONG  {error}")
        return 1
    wrong = _watched("comparing", None, lambda: verify_copy(copy))
    for text in wrong:
        print(f"WRONG  {text}")
    if not wrong:
        print(f"{dest}: as it was copied at {copy.made_at}: {len(copy.files)} files, {len(copy.tables)} tables")
    return 1 if wrong else 0


def restore(dest: Dest, data: Data = None, config: ConfigFile = None) -> None:
    """Put a copy into an empty or new folder, as a store. Nothing is written over."""
    import store
    from faultline import private
    from faultline.config import load
    from store.errors import StoreError

    settings = load(config)
    into = data or settings.data
    if not dest.is_dir():
        raise CommandError(f"{dest}: no such folder; give one that 'faultline backup' made")
    os.umask(private.UMASK)
    is_new = not into.exists()
    try:
        _watched("restoring", into, lambda: store.restore(dest, into))
    except StoreError as error:
        raise CommandError(str(error)) from error
    owner = _give_to_owner(into)
    print(f"{into}: restored from {dest}; its files belong to {owner}")
    used, other = into / "spool", settings.ingest.spool
    if used.is_dir() and data is None and other is not None and other.absolute() != used.absolute():
        print(
            f"{used} holds what was received and not stored: move its files to {other} while the service is stopped, if that is "
            "empty; else serve this folder once without [ingest] spool"
        )
    if is_new and os.geteuid() == 0:
        print(f"the service's user must own them: chown -R USER {into}")


def _give_to_owner(folder: Path) -> str:
    """Root restores for the service's user: the files get the owner of the folder that was there."""
    about = folder.stat()
    if os.geteuid() == 0 and about.st_uid:
        for path in folder.rglob("*"):
            os.chown(path, about.st_uid, about.st_gid, follow_symlinks=False)
    return named(about.st_uid)


def named(uid: int) -> str:
    """A user's name, else the number."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


# -- by whom ---------------------------------------------------------------------------------------------------------


def _of_folder(folder: Path, spool: Path | None, dest: Path) -> dict[str, Any]:
    """A store that no service holds; else its service is asked."""
    from collector import spool_files
    from faultline.remote import Service
    from store import open_store
    from store.errors import StoreError, StoreHeld

    try:
        with open_store(folder, read_only=True) as opened:
            waiting = spool or folder / "spool"
            return described(
                _watched("copying", dest, lambda: opened.backup(dest, lambda: spool_files.unstored(opened, waiting)))
            )
    except StoreHeld as held:
        if held.address is None:
            raise CommandError(str(held)) from held
        return _by_service(Service(held.address, named=False, patience_s=PATIENCE_S), dest)
    except StoreError as error:
        raise CommandError(str(error)) from error


def described(copy: Any) -> dict[str, Any]:
    """A ``store.door.Copy`` as the route answers it."""
    return {"folder": str(copy.folder), "made_at": copy.made_at, "engine": copy.engine, "schema": copy.schema,
            "tables": dict(copy.tables), "files": dict(copy.files), "absent": list(copy.absent)}  # fmt: skip


def _by_service(service: Any, dest: Path) -> dict[str, Any]:
    """Prepares the folder, and has the service make its copy there."""
    from faultline.remote import RefusedError

    is_new, proof = not dest.exists(), secrets.token_hex(16)
    file = dest / f"{PROOF}{proof}"
    try:
        dest.mkdir(parents=True, exist_ok=True, mode=0o700)
        if used := sorted(path.name for path in dest.iterdir() if path.name != "lost+found"):
            raise CommandError(f"{dest}: is not empty ({used[0]}); give another folder for the copy")
        file.touch(mode=0o600, exist_ok=False)
    except OSError as error:
        raise CommandError(f"{dest}: cannot be made or written: {error.strerror}; give another folder") from error
    body = {"folder": str(dest), "proof": proof}
    try:
        try:
            answer = _watched("copying", dest, lambda: service.ask(ROUTE, body))
        except RefusedError as refused:
            owner = refused.document.get("uid")
            if refused.code != 403 or not isinstance(owner, int) or os.geteuid() != 0 or not is_new:
                raise
            os.chown(dest, owner, -1)  # root prepares the folder for the service's user
            os.chown(file, owner, -1)
            answer = _watched("copying", dest, lambda: service.ask(ROUTE, body))
    except BaseException:
        file.unlink(missing_ok=True)
        if is_new:
            with suppress(OSError):
                dest.rmdir()
        raise
    return dict(json.loads(answer))


def _watched(what: str, folder: Path | None, work: Callable[[], Any]) -> Any:
    """Does it, with the bytes in the folder so far shown on a terminal."""
    if not sys.stderr.isatty():
        return work()
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from faultline import terminal

    done = threading.Event()
    bar = Progress(SpinnerColumn(), TextColumn(what), TextColumn("{task.description}"), TimeElapsedColumn(),
                   console=terminal.errors(), transient=True)  # fmt: skip
    with bar:
        task = bar.add_task("", total=None)

        def look() -> None:
            while not done.wait(0.5):
                bar.update(task, description=f"{_size(folder):,} bytes" if folder is not None else "")

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            return work()
        finally:
            done.set()
            thread.join()


def _size(folder: Path) -> int:
    with suppress(OSError):  # files come and go
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return 0
