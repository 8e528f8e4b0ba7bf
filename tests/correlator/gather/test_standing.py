"""Who may report what: a user writes every text of the catalogue to every place that is writable by users.

It changes nothing for anybody else. The tests also check which lines of trusted sources count.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import pytest

from correlator.gather.standing import admitted
from parsers.patterns import load
from tests.correlator.attacked import (
    ALICES,
    CHANNELS,
    MOMENTS,
    NAMED,
    Channel,
    judged,
    others,
    unaccused,
    words,
    written,
)
from tests.correlator.erins_job import empty_root
from tests.correlator.making import event, run
from tests.measured import Measured


@cache
def in_peace() -> dict[str, Any]:
    return judged(empty_root(), {})


def after(lies: dict[str, list[str]]) -> dict[str, Any]:
    return judged(empty_root(), lies)


def harm(channels: tuple[Channel, ...], texts: tuple[str, ...]) -> str:
    """What these texts changed for others, or gained their writer; empty if nothing."""
    return harmed_by(written(channels, texts))


def harmed_by(lies: dict[str, list[str]]) -> str:
    """The same of lines by place."""
    found, peace = after(lies), in_peace()
    if not NAMED.isdisjoint(lies):
        found, peace = (
            {**one, "verdicts": {k: unaccused(v) for k, v in one["verdicts"].items()}} for one in (found, peace)
        )
    reported = []
    for name, was in others(peace).items():
        if (now := others(found)[name]) != was:
            reported.append(f"{name}: {was} -> {now}" if name == "lemons" else f"{name} differ")
    own = found["verdicts"][str(ALICES)]
    if own["category"].startswith("infra.") or own["incident_id"] is not None:
        reported.append(f"alice's own: {own['category']} {own['confidence']}")
    return "; ".join(reported)


def culprits(channels: tuple[Channel, ...], texts: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """The texts that do harm, found by bisection."""
    if not harm(channels, texts):
        return []
    if len(channels) > 1:
        half = len(channels) // 2
        return [*culprits(channels[:half], texts), *culprits(channels[half:], texts)][:5]
    if len(texts) > 1:
        half = len(texts) // 2
        return [*culprits(channels, texts[:half]), *culprits(channels, texts[half:])][:3]
    return [(channels[0].name, texts[0], harm(channels, texts))]


def test_the_cluster_without_an_attack() -> None:
    verdicts = in_peace()["verdicts"]
    assert {job: v["category"] for job, v in verdicts.items()} == {
        "41": verdicts["41"]["category"], "42": "app.error", "43": "infra.network", "45": verdicts["45"]["category"], "46": "app.error",
    }  # fmt: skip
    assert not verdicts["45"]["category"].startswith("infra") and len(in_peace()["incidents"]) == 1


#: Each text goes one way in this many here, and every way in ``make test-long``.
SHARE = 16
#: Places with many ways that differ little: only one in this many.
_SELDOM = {
    "agent": 64,
    "jobs/41/stderr": 64,
    "jobs/41/stdout": 64,
    "otlp": 256,
    "loki": 256,
    "elasticsearch": 256,
    "tcp": 128,
    "accounting/names.txt": 128,
    "hooks/*": 128,
}
PLACES = sorted({channel.place for channel in CHANNELS})
#: Places that alice writes to at the same time: a pass over the small cluster costs more than all that she writes.
TOGETHER = {
    "files in which verdicts name her lines": [p for p in PLACES if p in NAMED],
    "other files, and receivers": [p for p in PLACES if p not in NAMED],
}


@pytest.mark.parametrize("places", TOGETHER.values(), ids=TOGETHER)
def test_no_text_of_the_catalogue_touches_another(places: list[str]) -> None:
    lies: dict[str, list[str]] = {}
    for place in places:
        lies |= written(tuple(c for c in CHANNELS if c.place == place), words(), _SELDOM.get(place, SHARE))
    lines = sum(map(len, lies.values()))
    print(f"{places}: {len(load().entries)} patterns, {len(words())} texts, {lines} lines")
    assert lines > 100 * len(places)
    assert not harmed_by(lies)


@pytest.mark.long
@pytest.mark.parametrize("place", PLACES)
def test_every_text_in_every_way(place: str, measured: Measured) -> None:
    """The whole product: all lines of a place are in one store, and the verdicts of all others are compared once."""
    channels = tuple(c for c in CHANNELS if c.place == place)
    begun = time.process_time()
    lines = sum(map(len, written(channels, words()).values()))
    harmed = harm(channels, words())
    used = time.process_time() - begun
    measured(
        f"{len(words())} texts x {len(channels)} channels = {lines} lines, {used:.0f} s of CPU; harm: {harmed or 'none'}"
    )
    assert not harmed


def test_one_line_of_a_job_rewrote_the_verdict_on_another() -> None:
    """Issue 22, row 1: the line with which bob's app.error became infra.gpu."""
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."
    names = {f"stdout: {name}" for name in ("journald kernel", "dmesg", "kernel:", "rfc3164 kernel")}
    channels = tuple(c for c in CHANNELS if c.name in names)
    assert len(channels) == len(names) and not harm(channels, (xid,))


def test_separators_before_another_jobs_row_in_a_name_make_that_row_no_jobs() -> None:
    """sacct -P prints names as they are: more separators than columns made the line unreadable, and the forged row behind it counted."""
    channels = tuple(c for c in CHANNELS if c.place == "accounting/names.txt")
    assert channels and not harm(channels, tuple("|".join("x" * number) for number in range(2, 30)))


@pytest.mark.long
def test_a_copy_under_another_name_makes_no_line_the_kernels() -> None:
    """The kernel of gx01 writes uptimes, so the first line is not its own; the second shows the same text as a program's."""
    port = "8: m-gx02@if2: <NO-CARRIER,BROADCAST,UP> mtu 1500 master sw0 state DOWN group default"
    for text in (port, "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."):
        lines = [
            f"Feb 28 10:11:58 gx01 kernel: {text}",
            f"2026-02-28T10:11:58+00:00 2026-02-28T10:11:58+00:00 gx01 user.err slurmd[77]: {text}",
        ]
        for order in (lines, lines[::-1]):
            assert others(after({"nodes/gx01/syslog": order})) == others(in_peace())


def test_a_daemons_name_breaks_no_munge() -> None:
    names = {f"syslog: file {daemon}[77]" for daemon in ("slurmdbd", "slurmrestd", "sackd")}
    channels = tuple(c for c in CHANNELS if c.name in names)
    assert len(channels) == len(names)
    lines = [c.line("error: munge_ctx_create failure", at) for c in channels for at in MOMENTS]
    assert others(after({channels[0].place: lines})) == others(in_peace())


def test_what_a_program_says_of_hardware_clears_nobody() -> None:
    found = after({"jobs/41/stderr": ["RuntimeError: CUDA error: uncorrectable ECC error encountered"]})
    own = found["verdicts"]["41"]
    assert (own["category"], own["incident_id"]) == ("unknown", None) and own["confidence"] <= 0.5
    assert "no line of a node confirms it" in own["summary"] and others(found) == others(in_peace())


def test_the_same_words_from_those_who_may_say_them_count() -> None:
    """The rule does not ignore legitimate lines: a node's own kernel, and slurmctld in its own file, count."""
    line = "[Sat Feb 28 10:19:55 2026] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."
    found = after({"nodes/gx02/dmesg": [line]})
    assert found["verdicts"]["45"]["category"] == "infra.gpu"
    found = after(
        {"controller/slurmctld.log": ["[2026-02-28T10:19:59.000] error: Nodes gx04 not responding, setting DOWN"]}
    )
    assert any("gx04" in i["hosts"] for i in found["incidents"])


def test_no_program_of_a_node_reports_the_state_of_another() -> None:
    """The words of a cloud's scheduler plugin, under a daemon's name, in a syslog without facilities."""
    words = "INFO - Setting following failed nodes into DOWN state: (x1) ['gx04']"
    line = f"2026-02-28 10:19:55,123 - [slurm_plugin.resume:_handle_failed_nodes] - {words}"
    assert others(after({"nodes/gx01/syslog": [f"Feb 28 10:19:55 gx01 nv-fabricmanager[77]: {line}"]})) == others(
        in_peace()
    )


def test_no_switch_has_a_gpu() -> None:
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."
    assert others(after({"switches/leaf1/syslog": [f"<187>Feb 28 10:19:55 leaf1 Ebra: {xid}"]})) == others(in_peace())


def test_what_counts_is_grouped_as_if_read_so() -> None:
    runs = {7: [run(7, ["n1"], 0.0, 500.0)], 8: [run(8, ["n2"], 0.0, 500.0)]}
    output: dict[str, Any] = {"source": "job_stderr", "job_id": 7}
    lines = [
        event("slurm.node_down", 90, "ctl", source="slurmctld"),
        event("slurm.comm_error", 100, "n1", "srun: error: Unable to contact slurm controller", **output),
        event("job.launch_error", 99, "n1", "first", **output),
        event("job.nccl_error", 101, "n2", "names a node of another job", **output),
        event("job.exit_error", 102, "n1", "error", **output),
        event("job.exit_error", 9_000, "n1", "after its end", **output),
        event("job.exit_error", 103, "n2", "error", source="job_stderr", job_id=8),
        event("gpu.xid", 104, "n1", "its own host", source="kernel"),
    ]
    found = admitted(sorted(lines, key=lambda e: e.time), runs, {"n1", "n2"})
    kept = [(e.kind, e.host, e.message) for e in found.events]
    assert ("job.launch_error", "n1", "srun: error: Unable to contact slurm controller") in kept
    assert ("job.nccl_error", None, "names a node of another job") in kept
    assert "after its end" not in {text for _, _, text in kept}
    for key, groups in (("kind", found.by_kind), ("source", found.by_source)):
        whole = {name: [e for e in found.events if getattr(e, key) == name] for name in groups}
        assert groups == whole
        assert sum(map(len, groups.values())) == len(found.events)
