"""Hook files into the store: what prolog and epilog saw, the batch script, the tail of the output.

A file is removed after the transaction that stored it. A crash in between leaves the file, which the ledger then
recognises.
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
from collector.agent.failure import Denied
from collector.agent.hook_folder import HookFolder, Odd, Word, words_given_up, words_unfinished
from collector.agent.output_names import batch_host
from collector.agent.strangers import quoted
from collector.identity.identity import Identity
from parsers import documents
from parsers.documents import fields
from parsers.documents.hook import read_spool
from parsers.host_names import short_name
from parsers.record import Origin, frame
from store.door import Asks, Door, FileEntry
from store.questions import files, job_rows

#: Most files stored in one transaction.
BATCH = 200


@dataclass
class HookSpool:
    """One spool folder. ``take()`` stores its files; unreadable ones go to ``bad/`` and are named.

    ``keep(records, key)`` puts wire records into the service's spool, once per key: reports of what hooks lost.
    """

    folder: Path
    places: Places | None = None
    cluster: str | None = None
    keep: Callable[[bytes, str], None] | None = None
    warnings: list[str] = field(default_factory=list)
    #: Knows the cluster's other names; None: there are none.
    identity: Identity | None = None
    _read_elsewhere: bool = False
    _refused: str = ""

    def __post_init__(self) -> None:
        self._spool = HookFolder(self.folder)

    def take(self, store: Door) -> int:
        """Stores waiting files. Returns how many: none while another process (an agent) empties the folder, or if
        others than Slurm may write into it."""
        if not self._may_read() or not self._is_ours():
            return 0
        taken = 0
        for batch in _batches(self._spool.waiting()):
            tables: dict[str, list[pl.DataFrame]] = {}
            entries, done = [], []
            known = {r["path"]: r["digest"] for r in store.ask(files.read_files("hook_spool"))}
            for name in batch:
                try:
                    entry = self._read(name, tables, known, store)
                except FileNotFoundError:
                    continue
                except OSError as error:  # no process can be started to read the files: retry in the next round
                    self.warnings.append(f"{quoted(name)} waits: {error.strerror}")
                    continue
                if entry is not None:
                    entries.append(entry)
                done.append(name)
            if entries:
                rows = {name: pl.concat(parts) for name, parts in tables.items()}
                if self.identity is not None:
                    rows = {name: self.identity.called(data) for name, data in rows.items()}
                store.append(rows, entries)
            for name in done:
                self._remove(name)
            taken += len(entries)
        return taken

    @property
    def trouble(self) -> str | None:
        """Why hook files are not read at the moment, in words; None if they are."""
        return self._refused or None

    def _remove(self, name: str) -> None:
        """Removes a file. One that cannot be removed is ignored by this process and known to the next one."""
        why = self._spool.remove(name)
        if why:
            self.warnings.append(f"{quoted(name)} is stored and cannot be removed from {self.folder}: {why}")

    def _may_read(self) -> bool:
        """Refuses a folder that others may write into, and logs that once."""
        try:
            self._spool.look()
            refused = spool_problem(self.folder) if self._spool.is_users else ""
        except FileNotFoundError:
            return False
        except Denied as why:
            refused = str(why)
        except OSError as error:
            refused = f"{self.folder} cannot be read: {error.strerror}"
        if refused and refused != self._refused:
            self.warnings.append(refused)
        self._refused = refused
        return not refused

    def _is_ours(self) -> bool:
        ours = self._spool.claim()
        if ours == self._read_elsewhere:
            self.warnings.append(f"{self.folder} is emptied by {'this service again' if ours else 'another process'}")
        self._read_elsewhere = not ours
        return ours

    def report_lost(self) -> None:
        """Reports what hooks could not deliver as blind periods. An exception of ``keep`` stops it; the next call
        continues."""
        if self.keep is None or self._read_elsewhere or not self._may_read():
            return
        lost = self._spool.begin_anew()
        count, at = self._spool.given_up(lost)
        if count:
            self.keep(
                _blind(at, words_given_up(self.folder, count), count), f"hooks gave up {self.folder} {count} {at}"
            )
            self._spool.remove(lost)
        for name in self._spool.unfinished():
            self.keep(
                _blind(time.time(), words_unfinished(self._spool, name), 1), f"hook unfinished {self.folder / name}"
            )
            self._spool.remove(name)

    def _read(
        self, name: str, tables: dict[str, list[pl.DataFrame]], known: dict[str, str], store: Door
    ) -> FileEntry | None:
        path = self.folder / name
        try:
            word: Word = self._spool.read(name)
            environment = read_spool(word.data)
            if environment.get("FAULTLINE_EVENT") == "taskprolog":
                raise Odd("a task prolog's word belongs into the folder that users may write into")
        except (Odd, ValueError) as why:
            self.warnings.append(f"{quoted(name)} in {self.folder}: {why}; {self._spool.set_aside(name)}")
            return None
        data = word.data
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
                self.warnings.append(f"{quoted(path.name)}: {artifact.kind} {quoted(artifact.path)}: {artifact.reason}")
                continue
            rows.append({
                "cluster": cluster, "job_id": int(job) if job.isdigit() else None, "restarts": int(restarts) if restarts.isdigit() else None,
                "kind": artifact.kind, "path": artifact.path, "host": host, "content": artifact.content.decode("utf-8", "replace"),
                "truncated": artifact.truncated, "taken_at": fields.epoch_text(environment.get("FAULTLINE_TIME")) or now,
                "file": f"{batch_host(environment)}:{artifact.path}",
            })  # fmt: skip
        return frame("artifacts", rows)


def spool_problem(folder: Path) -> str:
    """Why the service would refuse ``folder``, with the cure; empty if it would not, or hooks have not created it
    yet."""
    spool = HookFolder(folder)
    why = spool.problem()
    if not why and spool.is_users:
        why = f"{folder} is not read: users write into it (a spool of task prologs); the agent reads that one"
    return why


def _blind(at: float, why: str, hooks: int) -> bytes:
    return wire.blind("hooks", "hook_spool", at, at, why, hooks, host=short_name(os.uname().nodename))


def _add_name(environment: dict[str, str], store: Asks) -> None:
    """slurmd's epilog does not get the job's name (Slurm 22.05), which output file patterns need: other sources know
    it."""
    job = environment.get("SLURM_JOB_ID", "")
    if "SLURM_JOB_NAME" not in environment and job.isdigit():
        found = store.ask(job_rows.name_of_job(int(job)))
        if found:
            environment["SLURM_JOB_NAME"] = found[0]["name"]


def _batches(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), BATCH):
        yield names[start : start + BATCH]
