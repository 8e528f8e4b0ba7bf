"""A site for tests of the drain advisor: links with faults, a fake ``scontrol``, and rounds of the acting mode."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import sqlalchemy as sa
from fake_scontrol import FakeScontrol

from correlator.repairs.drain_candidates import Candidate, candidates
from faultline.config import DrainAdvisor
from faultline.drains.acting import DrainAdvising
from faultline.drains.record import Record
from faultline.drains.slurm_nodes import Scontrol
from parsers.record import frame
from store import open_store
from store.door import Door
from store.tables import DRAIN_DECISIONS, TRIAGE
from tests.replaced_model import replace_model

NOON = datetime(2026, 3, 1, 12)
HOSTS = [f"n{number}" for number in range(1, 13)]
KERNEL, SWITCH, USER = "kernel", "device", "local"


def line(host: str, event: str, device: str, minutes: float, authority: str, incident: str | None) -> dict[str, Any]:
    return {"event_id": f"{host}{device}{event}{minutes}{authority}", "time": NOON + timedelta(minutes=minutes), "resolution_us": 1000,
            "cluster": "c", "host": host, "event": event, "device": device, "severity": "warning", "message": f"{device} down",
            "entities": "{}", "count": 1, "incident_id": incident, "authority": authority}  # fmt: skip


@contextmanager
def cabled() -> Iterator[Door]:
    """A store with the cables of every host."""
    with open_store(None) as store:
        cables = [{"cluster": "c", "host": h, "device": "rdma0", "switch": "leaf1", "switch_port": f"Ethernet{h[1:]}", "plane": "0"} for h in HOSTS]  # fmt: skip
        store.append({"links": frame("links", cables)})
        yield store


class Site:
    """A store with faults, a service's advisor, and Slurm. ``time``: minutes after noon."""

    def __init__(self, store: Door, folder: Path) -> None:
        self.store, self.slurm, self.time, self.folder = store, FakeScontrol(folder / "slurm"), 0.0, folder
        for host in HOSTS:
            self.slurm.set(host)
        with store.write() as writer:
            for kept in (DRAIN_DECISIONS, TRIAGE):
                writer.change(sa.delete(kept))
        self.settings: dict[str, Any] = {"nodes_per_hour": 2, "share_per_hour": 1.0, "floor": 0.5}
        self.program_s = 5.0
        #: What the repair list says follows from the store alone, so it is made once for each ``down``.
        self.advised: list[Candidate] | None = None
        self.down("n1")

    def candidates(self, store: Door, cluster: str | None) -> list[Candidate]:
        if self.advised is None:
            self.advised = candidates(store, cluster)
        return self.advised

    def down(
        self, *hosts: str, writers: tuple[str, ...] = (KERNEL, SWITCH), since: float = -12, incidents: bool = True
    ) -> None:
        """The links that have no carrier, and who tells of it."""
        self.faults(dict.fromkeys(hosts, writers), since=since, without_incident=() if incidents else hosts)

    def faults(
        self,
        told: dict[str, tuple[str, ...]],
        *more: dict[str, Any],
        since: float = -12,
        without_incident: Sequence[str] = (),
    ) -> None:
        """As ``down``, with the writers of each host, and ``more`` lines."""
        self.advised = None
        events, found = [line("n12", "nic.link_up", "rdma0", since + 12, KERNEL, None), *more], []
        for host, writers in told.items():
            name = f"I-{host}" if host not in without_incident else None
            for writer in writers:
                if writer == SWITCH:
                    events.append(line("leaf1", "switch.port_down", f"Ethernet{host[1:]}", since, writer, name))
                else:
                    events.append(line(host, "nic.link_down", "rdma0", since, writer, name))
            found += [{"incident_id": name, "cluster": "c", "root_event": "nic.link_down", "root_host": host, "root_device": "rdma0",
                       "start": NOON, "document": json.dumps({"jobs": [], "slowed_jobs": []})}] if name else []  # fmt: skip
        replace_model(self.store, {
            "events": pl.DataFrame(events, infer_schema_length=None), "incidents": pl.DataFrame(found),
            "node_states": pl.DataFrame([{"cluster": "c", "host": h, "time": NOON - timedelta(hours=9), "state": "idle", "source": "poll"} for h in HOSTS]),
        })  # fmt: skip

    def round(self, minutes: float = 1.0) -> DrainAdvising:
        """One round of a service that has just started: what it knows is in the store."""
        self.time += minutes
        now = NOON + timedelta(minutes=self.time)
        self.slurm.at(f"{now:%Y-%m-%dT%H:%M:%S}")
        control = Scontrol("scontrol", self.program_s)
        made = DrainAdvising(self.store, DrainAdvisor(acting=True, **self.settings), None, control, lambda: now)
        made.round()
        return made

    @property
    def steps(self) -> list[tuple[str, str, str]]:
        now = NOON + timedelta(minutes=self.time)
        return [(step.host, step.step, step.guard) for step in Record(self.store).steps(now)]

    @property
    def refused(self) -> dict[str, str]:
        return {host: guard for host, step, guard in self.steps if step == "refused"}

    def drained(self) -> str:
        """Drains n1, as it should."""
        self.round()
        (update,) = self.slurm.updates
        return update[3].removeprefix("Reason=")

    def check(self, code: int) -> None:
        program = self.folder / "check"
        program.write_text(f'#!/bin/sh\necho "$1" >>"{self.folder}/checked"\necho tested\nexit {code}\n')
        program.chmod(0o755)
        self.settings |= {"resume": True, "check": (str(program),)}
