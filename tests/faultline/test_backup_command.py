"""``faultline backup``, ``verify`` and ``restore``: a copy is what the store was, what differs is named, and nothing that
was interrupted passes for a copy."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from fastapi.testclient import TestClient

from collector.carry import Carry
from collector.spool_files import unstored
from faultline.backup_command import PROOF, ROUTE
from faultline.config import validate
from faultline.receiving import Receiving
from faultline.service import Service, build_app
from parsers.record import frame
from store import open_store, read_copy, verify_copy
from store.door import Door
from store.duckdb import archive, copies
from store.duckdb.store import DuckStore
from store.errors import StoreError
from store.line_frames import coded, logs_for_storage
from store.tables import CARRIED
from tests.faultline.command import Done, faultline
from tests.store.duckdb.test_compacting import ROOT

BEGIN = datetime(2026, 3, 1, 8)


def lines(*texts: str) -> pl.DataFrame:
    return frame("logs", [
        {"time": BEGIN + timedelta(seconds=n), "host": "gx1", "raw": text, "message": text, "file": "f", "line": n}
        for n, text in enumerate(texts, 1)
    ])  # fmt: skip


def texts(folder: Path) -> list[str]:
    with open_store(folder, read_only=True) as store:
        assert isinstance(store, DuckStore)
        return sorted(row["raw"] for row in store.rows("SELECT raw FROM raw.log_view"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with loose lines and a closed day."""
    folder = tmp_path_factory.mktemp("data")
    with open_store(folder) as store:
        assert isinstance(store, DuckStore)
        store.append({"logs": lines("old one", "old two")})
        archive.close_days(store, BEGIN.date() + timedelta(days=9), least=1)
        store.append({"logs": lines("new")})
    return folder


@pytest.fixture(scope="module")
def made(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    dest = tmp_path_factory.mktemp("copies") / "one"
    return dest, faultline("backup", dest, "--data", data)


@pytest.fixture
def copy(made: tuple[Path, Done], tmp_path: Path) -> Path:
    """A copy of the copy, to be damaged."""
    return shutil.copytree(made[0], tmp_path / "copy")


def test_a_copy_is_verified_and_restored(data: Path, made: tuple[Path, Done], tmp_path: Path) -> None:
    dest, done = made
    assert done.returncode == 0 and b" rows in " in done.stdout and done.stderr == b""
    assert (dest.stat().st_mode & 0o777, (dest / copies.NOTE).stat().st_mode & 0o777) == (0o700, 0o600)
    before = {path: path.read_bytes() for path in dest.rglob("*") if path.is_file()}
    checked = faultline("verify", dest)
    assert checked.returncode == 0 and b"as it was copied at" in checked.stdout
    assert {path: path.read_bytes() for path in dest.rglob("*") if path.is_file()} == before
    back = faultline("restore", dest, "--data", tmp_path / "back")
    assert back.returncode == 0 and b"restored from" in back.stdout
    assert texts(tmp_path / "back") == texts(data) == ["new", "old one", "old two"]
    assert {path.name for path in (tmp_path / "back").iterdir()} == {
        "archive",
        "faultline.duckdb",
        "faultline.duckdb.mark",
    }


def damaged(copy: Path, how: str) -> str:
    """Damages a copy; returns what must be named."""
    (parquet,) = copy.glob("archive/*/*.parquet")
    if how == "a byte of the database":
        with (copy / "faultline.duckdb").open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last[0] ^ 1]))
        return f"{copy / 'faultline.duckdb'}: its content is not what was copied"
    if how == "a closed day is gone":
        parquet.unlink()
        return f"{parquet}: missing"
    if how == "a closed day is shorter":
        os.truncate(parquet, 10)
        return f"{parquet}: has 10 bytes"
    if how == "another log":
        (copy / "faultline.duckdb.wal").write_bytes(b"")
        return f"{copy / 'faultline.duckdb.wal'}: is no part of the copy"
    if how == "rows were added":
        with open_store(copy) as store:
            store.set_fact("lemons", "[]")
        return "model.facts has"
    if how == "no note":
        (copy / copies.NOTE).unlink()
        return "holds no finished copy"
    os.truncate(copy / copies.NOTE, 200)
    return f"{copies.NOTE} cannot be read"


@pytest.mark.parametrize(
    "how",
    ["a byte of the database", "a closed day is gone", "a closed day is shorter", "another log", "rows were added", "no note", "half a note"],
)  # fmt: skip
def test_what_differs_is_named_and_not_restored(copy: Path, tmp_path: Path, how: str) -> None:
    named = damaged(copy, how)
    done = faultline("verify", copy)
    assert done.returncode == 1 and named in done.stdout.decode()
    assert all(line.startswith("WRONG  ") for line in done.stdout.decode().splitlines())
    back = faultline("restore", copy, "--data", tmp_path / "back")
    assert back.returncode == 2 and back.stderr.count(b"\n") == 1 and back.stdout == b""
    assert not (tmp_path / "back").exists()


def test_a_kill_at_any_moment_leaves_no_copy(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies on disk between two steps is what a kill leaves there."""
    dest, left = tmp_path / "dest", []

    def seen(name: str) -> None:
        left.append(shutil.copytree(dest, tmp_path / f"left {len(left)} {name}"))

    def watched(name: str) -> None:
        step = getattr(copies, name)

        def before_and_after(*given: object) -> object:
            seen(f"before {name}")
            found = step(*given)
            if name != "_write_note":
                seen(f"after {name}")
            return found

        monkeypatch.setattr(copies, name, before_and_after)

    for name in ("_copied", "digests", "_write_note"):
        watched(name)
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda path, to: (seen("rename"), rename(path, to))[1])
    assert faultline("backup", dest, "--data", data).returncode == 0
    monkeypatch.undo()
    assert len(left) == 8
    for folder in left:
        done = faultline("verify", folder)
        assert done.returncode == 1 and b"no finished copy" in done.stdout, folder.name
    again = faultline("backup", left[-1], "--data", data)
    assert again.returncode == 2 and b"was not finished; remove it" in again.stderr
    assert faultline("verify", dest).returncode == 0


def test_a_copy_that_fails_leaves_the_folder_as_it_was(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "_COPY", f"{copies._COPY}; raise OSError('No space left on device')")
    dest = tmp_path / "dest"
    dest.mkdir()
    done = faultline("backup", dest, "--data", data)
    assert done.returncode == 2 and b"No space left" in done.stderr and done.stderr.count(b"\n") == 1
    assert list(dest.iterdir()) == []


@pytest.mark.parametrize("holds", ["faultline.duckdb", "file", "restoring"])
def test_restore_writes_over_nothing(made: tuple[Path, Done], tmp_path: Path, holds: str) -> None:
    (tmp_path / holds).write_bytes(b"mine")
    done = faultline("restore", made[0], "--data", tmp_path)
    assert done.returncode == 2 and str(tmp_path).encode() in done.stderr and done.stderr.count(b"\n") == 1
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(holds, b"mine")]


def test_a_restore_that_fails_leaves_no_store(
    made: tuple[Path, Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "_take_in_carried", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    done = faultline("restore", made[0], "--data", tmp_path / "back")
    assert done.returncode == 2 and b"No space left" in done.stderr
    assert list((tmp_path / "back").iterdir()) == []


def test_a_copy_made_by_another_engine_is_compared_by_its_files(copy: Path) -> None:
    note = json.loads((copy / copies.NOTE).read_text())
    note["engine"], note["tables"]["raw.logs"] = "DuckDB 0.1", [1, "digest of another hash"]
    (copy / copies.NOTE).write_text(json.dumps(note))
    assert verify_copy(read_copy(copy)) == []
    (copy / "faultline.duckdb.mark").write_bytes(b"x")
    assert len(verify_copy(read_copy(copy))) == 1


# -- a running service -----------------------------------------------------------------------------------------------


@pytest.fixture
def carrying(tmp_path: Path) -> Iterator[Door]:
    """A store that names a file with lines that wait for their segment."""
    spool = tmp_path / "data" / "spool"
    spool.mkdir(parents=True)
    (spool / "id").write_text("s")
    Carry(spool).write("step.rows", coded(logs_for_storage(lines("waits"))))
    with open_store(tmp_path / "data") as store:
        store.open_intake()
        rows = pl.DataFrame([{"spool": "s", "step": "step", "file": "step.rows"}])
        store.append({"logs": lines("stored")}, also=lambda writer: writer.insert(CARRIED, rows))
        yield store


def test_lines_that_wait_for_their_segment_are_in_the_copy(carrying: Door, tmp_path: Path) -> None:
    copy = carrying.backup(tmp_path / "copy", lambda: unstored(carrying, tmp_path / "data" / "spool"))
    assert copy.absent == () and verify_copy(copy) == []
    assert sorted(copy.files) == ["faultline.duckdb", "faultline.duckdb.mark", "spool/id", "spool/step.rows"]
    assert faultline("restore", tmp_path / "copy", "--data", tmp_path / "back").returncode == 0
    assert texts(tmp_path / "back") == ["stored", "waits"]
    with open_store(tmp_path / "back") as store:
        assert [row["file"] for row in store.ask(CARRIED.select())] == [None]


def test_lines_that_are_not_there_are_named(carrying: Door, tmp_path: Path) -> None:
    assert carrying.backup(tmp_path / "copy", lambda: unstored(carrying, tmp_path / "elsewhere")).absent == (
        "step.rows",
    )
    carrying.close()
    shutil.rmtree(tmp_path / "data" / "spool")
    done = faultline("backup", tmp_path / "other", "--data", tmp_path / "data")
    assert done.returncode == 0 and b"MISSING  step.rows" in done.stdout


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("served")
    config = validate({"data": str(folder)}, "test")
    receiving = Receiving(config, listeners=False)
    with open_store(folder) as store:
        store.append({"logs": lines("served")})
        yield TestClient(build_app(Service(config, store, receiving)))
        receiving.close()


PROVEN = "0" * 32


@pytest.mark.parametrize(
    "what", ["good", "no proof", "open to others", "another's", "a link", "relative", "is used", "is a file"]
)
def test_a_service_writes_only_where_its_account_prepared_it(client: TestClient, tmp_path: Path, what: str) -> None:
    folder = tmp_path / "dest"
    folder.mkdir(mode=0o700)
    (folder / f"{PROOF}{PROVEN}").touch()
    asked, status = str(folder), 403
    if what == "good":
        status = 200
    elif what == "no proof":
        (folder / f"{PROOF}{PROVEN}").rename(folder / f"{PROOF}{'1' * 32}")
    elif what == "open to others":
        folder.chmod(0o777)
    elif what == "another's":
        if os.geteuid() != 0:
            pytest.skip("only root gives folders away")
        os.chown(folder, 12345, -1)
    elif what == "a link":
        (tmp_path / "link").symlink_to(folder)
        asked = str(tmp_path / "link")
    elif what == "relative":
        asked, status = "dest", 400
    elif what == "is used":
        (folder / "file").touch()
        status = 409
    else:
        asked = str(folder / f"{PROOF}{PROVEN}")
    before = sorted(path.name for path in folder.iterdir())
    answer = client.post(ROUTE, json={"folder": asked, "proof": PROVEN})
    assert answer.status_code == status, answer.text
    if what == "good":
        assert answer.json()["tables"]["raw.logs"][0] == 1 and verify_copy(read_copy(folder)) == []
    else:
        assert sorted(path.name for path in folder.iterdir()) == before
        assert what in ("relative", "is used") or answer.json()["uid"] == os.geteuid()


def test_a_copy_says_who_had_it_made(client: TestClient, tmp_path: Path) -> None:
    (tmp_path / f"{PROOF}{PROVEN}").touch()
    assert client.post(ROUTE, json={"folder": str(tmp_path), "proof": PROVEN}).status_code == 200
    path = Path(client.app.state.audit.path)  # type: ignore[attr-defined]
    last = json.loads(path.read_text().splitlines()[-1])
    assert (last["act"], last["folder"]) == ("backup", str(tmp_path))


def test_writers_go_on_while_closed_days_and_digests_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path / "data") as store:
        store.append({"logs": lines("before")})
        digests = copies.digests

        def meanwhile(connection: object) -> object:
            writer = threading.Thread(target=lambda: store.append({"logs": lines("meanwhile")}))
            writer.start()
            writer.join(120)
            assert not writer.is_alive()
            return digests(connection)  # type: ignore[arg-type]

        monkeypatch.setattr(copies, "digests", meanwhile)
        copy = store.backup(tmp_path / "copy")
        monkeypatch.undo()
        assert copy.tables["raw.logs"][0] == 1 and verify_copy(copy) == []
        store.checkpoint()
    assert texts(tmp_path / "data") == ["before", "meanwhile"]


def test_a_store_in_memory_has_no_copy(tmp_path: Path) -> None:
    with open_store(None) as store, pytest.raises(StoreError, match="in memory"):
        store.backup(tmp_path / "copy")


def put(receiving: Receiving, text: bytes) -> None:
    """An acknowledged batch of one line."""
    meta = {"kind": "ingest", "received": 1, "form": "lines", "key": text.decode()}
    receiving.spool.append(meta, text).result()


def store_all(folder: Path) -> None:
    """As a service does that starts on this folder. A batch of its own ends what is stored."""
    receiving = Receiving(validate({"data": str(folder)}, "test"), listeners=False)
    with open_store(folder) as store:
        pipeline = receiving.attach(store)
        put(receiving, b"last")
        assert pipeline.drain(60)
        receiving.close()


def test_batches_that_no_service_stored_are_in_the_copy(tmp_path: Path) -> None:
    """They were acknowledged."""
    data = tmp_path / "data"
    receiving = Receiving(validate({"data": str(data)}, "test"), listeners=False)
    put(receiving, b"received")
    receiving.close()
    open_store(data).close()
    done = faultline("backup", tmp_path / "copy", "--data", data)
    assert done.returncode == 0 and b"received and is not stored yet" in done.stdout, done.stderr
    assert faultline("verify", tmp_path / "copy").returncode == 0
    assert faultline("restore", tmp_path / "copy", "--data", tmp_path / "back").returncode == 0
    spools = [folder / "spool" for folder in (data, tmp_path / "back")]
    assert len({(spool / "id").read_text() for spool in spools}) == 1
    assert len({b"".join(path.read_bytes() for path in sorted(spool.glob("*.seg"))) for spool in spools}) == 1


@pytest.mark.long
def test_a_copy_of_a_service_that_takes_lines_in(tmp_path: Path) -> None:
    """Each stored line is in the copy or came after it; kill -9 of the service meanwhile leaves no copy."""
    with subprocess.Popen(
        [sys.executable, "-m", "faultline.entry", "serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    ) as service:  # fmt: skip
        assert service.stdout is not None
        address = service.stdout.readline().split()[3].rstrip("/")
        stop, enough, sent = threading.Event(), threading.Event(), [0]

        def send() -> None:
            try:
                while not stop.is_set():
                    body = "".join(f"2026-03-01T08:00:00Z gx1 app: line {sent[0]}-{n}\n" for n in range(200)).encode()
                    urllib.request.urlopen(urllib.request.Request(f"{address}/api/v1/ingest", body)).read()
                    sent[0] += 200
                    if sent[0] >= 2000:
                        enough.set()
            finally:
                enough.set()

        sender = threading.Thread(target=send)
        sender.start()
        enough.wait()
        assert sent[0] >= 2000
        acknowledged = sent[0]
        done = faultline("backup", tmp_path / "copy", "--data", tmp_path / "data")
        assert done.returncode == 0, done.stderr.decode()
        at_end = sent[0]
        stop.set()
        sender.join()
        assert faultline("verify", tmp_path / "copy").returncode == 0
        stopped = copies._COPY.replace("for source", "os.kill(os.getppid(), 9)\nfor source")
        assert stopped != copies._COPY
        service.send_signal(signal.SIGTERM)
        service.wait(120)
    assert faultline("restore", tmp_path / "copy", "--data", tmp_path / "back").returncode == 0
    store_all(tmp_path / "back")
    found = texts(tmp_path / "back")
    assert acknowledged < len(found) <= at_end + 201 and len(set(found)) == len(found)
    killed = (
        "import sys; from pathlib import Path; from store import open_store; from store.duckdb import copies\n"
        "copies._COPY = sys.argv[3]\nopen_store(Path(sys.argv[1])).backup(Path(sys.argv[2]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", killed, tmp_path / "data", tmp_path / "half", stopped], cwd=ROOT, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert faultline("verify", tmp_path / "half").returncode == 1
