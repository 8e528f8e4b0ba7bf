"""The same faults of the real cluster at a site with other names for machines, interfaces and people: the same answers.

This shows whatever is concluded from a name alone: every host, interface, user and cluster of a capture gets another
name, in the logs as in the truth.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from correlator.verdicts.doubts import ROLELESS_SURE
from tests.correlator.engine import test_captures as captures

#: A site's names for the mini cluster's. Machines whose names are words of log lines; interfaces whose names do not
#: show their use.
SITES = {
    "racks": {
        "gpu": "dgx-a100-", "ctl": "slurm-head", "leaf01": "sw-r12-t0", "eth0": "eno8303", "hsn0": "enp157s0np0",
        "mini": "hpc2", "alice": "m.meyer", "bob": "u1004711",
    },
    "slots": {
        "gpu": "nid0010", "ctl": "mgt1", "leaf01": "x3000c0r1b0", "eth0": "ens1f0", "hsn0": "ens2f1np1",
        "mini": "c", "alice": "anna_s", "bob": "bo",
    },
    "words": {
        "gpu": "error-down", "ctl": "link", "leaf01": "failed-leaf", "eth0": "em1", "hsn0": "p1p1",
        "mini": "job", "alice": "root-cause", "bob": "slurmx",
    },
}  # fmt: skip
FAULTS = [
    ("racks", "fabric_flap_long"), ("slots", "switch_down"), ("words", "entangled/two_faults"),
    *(
        pytest.param(*fault, marks=pytest.mark.long)
        for fault in (
            ("racks", "mgmt_flap_requeue"), ("racks", "further/flaps_of_many"), ("slots", "fabric_flap_decoy"), ("slots", "fabric_flap_long"),
            ("words", "entangled/het_link_lost"),
        )
    ),
]  # fmt: skip


def renaming(names: dict[str, str]) -> Callable[[str], str]:
    rules = [
        (re.compile(rf"(?<![A-Za-z]){old}(?=\d|\[)" if old == "gpu" else rf"\b{old}\b"), new)
        for old, new in names.items()
    ]

    def renamed(text: str) -> str:
        for rule, new in rules:
            text = rule.sub(lambda _found, new=new: new, text)  # type: ignore[misc]
        return text

    return renamed


def unpacked(name: str, folder: Path) -> Path:
    if "/" not in name:
        return captures.ROOT / "tests" / "captures" / name
    with tarfile.open(captures.ROOT / "tests" / "captures" / f"{name}.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return folder / name.partition("/")[2]


@pytest.mark.one_of_each(kind=lambda site: site)
@pytest.mark.parametrize(("site", "name"), FAULTS)
def test_a_fault_under_other_names(site: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = SITES[site]
    renamed, stated = renaming(names), captures.expected
    source, target = unpacked(name, tmp_path / "as-it-was"), tmp_path / name.rpartition("/")[2]
    for path in source.rglob("*"):
        if path.is_file():
            there = target / renamed(str(path.relative_to(source)))
            there.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_bytes().decode("utf-8", "surrogateescape")
            there.write_bytes(renamed(text).encode("utf-8", "surrogateescape"))
    monkeypatch.setattr(captures, "DEVICES", {"mgmt": names["eth0"], "hsn": names["hsn0"]})
    monkeypatch.setattr(
        captures, "expected", lambda cause: replace(wanted := stated(cause), host=wanted.host and renamed(wanted.host))
    )
    captures.check_capture(target)
    for incident in captures.concluded(target)["incidents"]:
        if incident["root_cause"]["device"] == names["hsn0"] and incident["severity"] == "impact":
            assert incident["confidence"] <= ROLELESS_SURE
            assert any(
                "[interfaces]" in doubt
                for v in captures.concluded(target)["verdicts"].values()
                for doubt in v["doubts"]
            )
