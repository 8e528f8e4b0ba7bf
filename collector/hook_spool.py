"""Hook files into the store: what prolog and epilog saw, the batch script, the tail of the output.

A file is removed after the transaction that stored it. A crash in between leaves the file; the ledger knows it then.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from collector.agent import wire
from collector.agent.artifacts import Places, collect
from collector.agent.hook_folder import HookFolder, words_given_up, words_unfinished
from collector.agent.output_names import batch_host
from parsers import documents
from parsers.documents import fields
from parsers.documents.hook import read_spool
from parsers.record import Origin, frame
from store.cluster_names import renamed
from store.duckdb_store import DuckStore, FileEntry

#: So many files are stored in one transaction.
BATCH = 200


@dataclass
class HookSpool:
    """One spool folder. ``take()`` stores what lies in it; files that cannot be read go to ``bad/`` and are named.

    ``keep(records, key)`` puts records of the wire into the service's spool, once for a key: there goes what hooks lost.
    """

    folder: Path
    places: Places | None = None
    cluster: str | None = None
    keep: Callable[[bytes, str], None] | None = None
    warnings: list[str] = field(default_factory=list)
    #: Other names of the cluster (``store.cluster_names``).
    other_names: dict[str, str] = field(default_factory=dict)
    _read_elsewhere: bool = False
    _stuck: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._spool = HookFolder(self.folder)

    def waiting(self) -> list[Path]:
        try:
            found = (p for p in self.folder.glob("*.hook") if not p.name.startswith("."))
            return sorted(p for p in found if p not in self._stuck)
        except OSError:
            return []

    def take(self, store: DuckStore) -> int:
        """Stores waiting files; returns how many: none while another process (an agent) empties the folder."""
        if not self.folder.is_dir() or not self._is_ours():
            return 0
        taken = 0
        for batch in _batches(self.waiting()):
            tables: dict[str, list[pl.DataFrame]] = {}
            entries, done = [], []
            known = {
                r["path"]: r["digest"]
                for r in store.rows("SELECT path, digest FROM raw.files WHERE kind = 'hook_spool'")
            }
            for path in batch:
                try:
                    entry = self._read(path, tables, known, store)
                except OSError as error:  # no process can be started that reads the job's files: the next round may
                    self.warnings.append(f"{path.name} waits: {error}")
                    continue
                if entry is not None:
                    entries.append(entry)
                done.append(path)
            if entries:
                rows = {name: renamed(pl.concat(parts), self.other_names) for name, parts in tables.items()}
                store.add(rows, entries)
            for path in done:
                self._remove(path)
            taken += len(entries)
        return taken

    def _remove(self, path: Path) -> None:
        """What cannot be removed is not looked at again by this process, and known to the next one."""
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._stuck.add(path)
            self.warnings.append(f"{path} is stored and cannot be removed: {error.strerror}")

    def _is_ours(self) -> bool:
        ours = self._spool.claim()
        if ours == self._read_elsewhere:
            self.warnings.append(f"{self.folder} is emptied by {'this service again' if ours else 'another process'}")
        self._read_elsewhere = not ours
        return ours

    def tell_lost(self) -> None:
        """Tells what hooks could not hand over as blind periods. What ``keep`` raises stops it; the next call goes on."""
        if self.keep is None or self._read_elsewhere:
            return
        told = self._spool.begin_anew()
        count, at = self._spool.given_up(told)
        if count:
            self.keep(
                _blind(at, words_given_up(self.folder, count), count), f"hooks gave up {self.folder} {count} {at}"
            )
            (self.folder / told).unlink()
        for path in self._spool.unfinished():
            self.keep(_blind(time.time(), words_unfinished(path), 1), f"hook unfinished {path}")
            path.unlink(missing_ok=True)

    def _read(
        self, path: Path, tables: dict[str, list[pl.DataFrame]], known: dict[str, str], store: DuckStore
    ) -> FileEntry | None:
        try:
            data = path.read_bytes()
            environment = read_spool(data)
        except (OSError, ValueError) as error:
            self._set_aside(path, str(error))
            return None
        digest = hashlib.blake2b(data, digest_size=16).hexdigest()
        if known.get(str(path)) == digest:
            return None
        now = datetime.now(UTC).replace(tzinfo=None)
        cluster = environment.get("SLURM_CLUSTER_NAME") or self.cluster
        host = environment.get("FAULTLINE_HOST")
        parsed = documents.read(
            "hook_spool", data, Origin(path=str(path), cluster=cluster, host=host, received=now, reference=now)
        )
        if environment.get("FAULTLINE_EVENT") in ("epilog", "epilogslurmctld", "prologslurmctld"):
            _add_name(environment, store)
            tables.setdefault("artifacts", []).append(self._artifacts(environment, cluster, host, now, path))
        for name, rows in parsed.tables.items():
            tables.setdefault(name, []).append(rows)
        return FileEntry(
            str(path),
            cluster,
            host,
            "hook_spool",
            "hook",
            "hook spool",
            len(data),
            digest,
            0,
            0,
            0,
            tuple(parsed.warnings),
        )

    def _artifacts(
        self, environment: dict[str, str], cluster: str | None, host: str | None, now: datetime, path: Path
    ) -> pl.DataFrame:
        job, restarts = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_JOB_RESTART_COUNT", "")
        rows: list[dict[str, object]] = []
        for artifact in collect(environment, self.places):
            if artifact.reason is not None:
                self.warnings.append(f"{path.name}: {artifact.kind} {artifact.path}: {artifact.reason}")
                continue
            rows.append({
                "cluster": cluster, "job_id": int(job) if job.isdigit() else None, "restarts": int(restarts) if restarts.isdigit() else None,
                "kind": artifact.kind, "path": artifact.path, "host": host, "content": artifact.content.decode("utf-8", "replace"),
                "truncated": artifact.truncated, "taken_at": fields.epoch_text(environment.get("FAULTLINE_TIME")) or now,
                "file": f"{batch_host(environment)}:{artifact.path}",
            })  # fmt: skip
        return frame("artifacts", rows)

    def _set_aside(self, path: Path, reason: str) -> None:
        self.warnings.append(f"{path.name}: {reason}; set aside in bad/")
        try:
            (self.folder / "bad").mkdir(exist_ok=True)
            path.rename(self.folder / "bad" / path.name)
        except OSError:
            self._stuck.add(path)


def _blind(at: float, why: str, hooks: int) -> bytes:
    return wire.blind("hooks", "hook_spool", at, at, why, hooks, host=os.uname().nodename.split(".")[0])


def _add_name(environment: dict[str, str], store: DuckStore) -> None:
    """slurmd's epilog is not told the job's name (Slurm 22.05), which output file patterns need: other sources know it."""
    job = environment.get("SLURM_JOB_ID", "")
    if "SLURM_JOB_NAME" not in environment and job.isdigit():
        found = store.rows(
            "SELECT name FROM raw.jobs WHERE job_id = ? AND name IS NOT NULL ORDER BY submit DESC NULLS LAST LIMIT 1",
            [int(job)],
        )
        if found:
            environment["SLURM_JOB_NAME"] = found[0]["name"]


def _batches(paths: list[Path]) -> Iterator[list[Path]]:
    for start in range(0, len(paths), BATCH):
        yield paths[start : start + BATCH]
