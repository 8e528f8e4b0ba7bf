"""Which patterns are near a message without an event, and the first condition that it does not meet."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from parsers.near import near
from parsers.patterns import Catalogue, load
from tests.faultline.command import faultline

SITE = r"""
[[pattern]]
id = "site-pump"
event = "site.pump_down"
literal = ["pump stopped"]
regex = ['^coolant (?P<unit>\w+): pump stopped after (?P<seconds>\d+) s$']
sources = ["kernel"]
example = "coolant cdu3: pump stopped after 40 s"
"""


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Catalogue:
    path = tmp_path_factory.mktemp("site") / "pump.toml"
    path.write_text(SITE)
    whole = load([path])
    return Catalogue(tuple(entry for entry in whole.entries if entry.id == "site-pump"))


@pytest.mark.parametrize(
    ("message", "source", "why"),
    [
        ("coolant cdu3: pump halted after 40 s", "kernel", "none of its literals: 'pump stopped'"),
        ("coolant cdu3: pump stopped after 40 min", "kernel", "matches 'coolant cdu3: pump stopped after 40 ' and then wants: 's$'"),
        ("coolant: pump stopped after 40 s", "kernel", "matches 'coolant' and then wants: ' (?P<unit>"),
        ("coolant cdu3: pump stopped after 40 s", "syslog", "is for lines of kernel, and this one is of syslog"),
    ],
)  # fmt: skip
def test_the_first_condition_that_is_not_met_is_named(
    catalogue: Catalogue, message: str, source: str, why: str
) -> None:
    (found,) = near(catalogue, message, source)
    assert (found.pattern.id, why in found.why) == ("site-pump", True), found.why
    assert "pump" in found.shared and str(found).startswith("pattern site-pump (site.pump_down) is near, by ")


def test_what_is_excepted_is_named(catalogue: Catalogue) -> None:
    excepting = replace(catalogue.entries[0], unless=re.compile("cdu3"))
    (found,) = near(Catalogue((excepting,)), "coolant cdu3: pump stopped after 40 s", "kernel")
    assert found.why == "its regex matches, and so does what it excepts (unless): 'cdu3'"


def test_a_message_of_other_words_is_near_nothing(catalogue: Catalogue) -> None:
    assert near(catalogue, "epoch 3 loss 0.41", "job_stdout") == []


def test_the_nearest_of_the_whole_catalogue_comes_first() -> None:
    found = near(load(), "mlx5_core 0000:17:00.0 ens1f0np0: Link dwn", "kernel")
    assert len(found) <= 3 and found[0].pattern.event == "nic.link_down"


def test_explain_takes_a_line(tmp_path: Path) -> None:
    line = "[2026-03-01T08:00:01.123] error: Nodes gx1  not answering //now"
    done = faultline("parse", "--explain", line, cwd=tmp_path)
    assert done.returncode == 0 and b"//now" in done.stdout
    assert b"format slurm" in done.stderr and b"event other" in done.stderr and b" is near, by " in done.stderr
    refused = faultline("parse", line, cwd=tmp_path)
    assert refused.returncode == 2 and b"cannot be read" in refused.stderr
