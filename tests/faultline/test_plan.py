"""``faultline plan``: an estimate from what a sample of lines costs here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from faultline import plan
from faultline.failure import CommandError
from faultline.plan import Measured, estimate

MEASURED = Measured(1_000, take_in_s=20e-6, conclude_s=5e-6, raw=120.0, hot=100.0, closed=20.0, events=0.02, sample="x")


def test_what_a_cluster_needs_follows_from_what_a_line_costs() -> None:
    found = estimate(MEASURED, nodes=864, lines_per_node=100_000, days=30, hot_days=2, peak=10.0)
    assert (found["lines_a_day"], found["lines_a_second"], found["peak_lines_a_second"]) == (
        86_400_000,
        1000.0,
        10_000.0,
    )
    # 10,000 lines a second take 0.25 of a core, which may be 60 % full.
    assert (found["instances"], found["cores"]) == (1, 2)
    # Three days in the database and 27 closed ones, and 30 % to spare.
    assert found["disk_gb"] == pytest.approx(86.4e6 * (3 * 100 + 27 * 20) * 1.3 / 1e9, abs=0.1)


def test_more_lines_than_one_writer_takes_need_more_services() -> None:
    few, many = (estimate(MEASURED, nodes=n, lines_per_node=1e6, days=7) for n in (100, 10_000))
    assert few["instances"] == 1 and many["instances"] == 18  # 1.16 M lines a second at most, 66,667 for a service
    assert many["cores"] == pytest.approx(100 * few["cores"], rel=0.1) or many["cores"] > 40


def test_a_plan_for_less_than_the_hot_days_closes_none() -> None:
    assert estimate(MEASURED, 1, 1e6, days=2, hot_days=7)["disk_gb"] == pytest.approx(
        2 * 100 * 1e6 * 1.3 / 1e9, abs=0.05
    )


@pytest.mark.parametrize("text, why", [(None, "cannot be read"), ("", "it has no lines")])
def test_a_sample_without_lines_is_named(text: str | None, why: str, tmp_path: Path) -> None:
    sample = tmp_path / "sample.log"
    if text is not None:
        sample.write_text(text)
    with pytest.raises(CommandError, match=why):
        plan.measure(sample)


def test_measured_with_a_sites_own_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sample = tmp_path / "messages"
    lines = [
        f"Mar  2 08:{n // 60 % 60:02d}:{n % 60:02d} gx{n % 7} kernel: [{n}.000001] mlx5_core 0000:17:00.0 ib0: Link {'down' if n % 2 else 'up'}\n"
        for n in range(300)
    ]
    sample.write_text("".join(lines))
    assert plan.plan(10, 1000.0, 30, 2, 10.0, sample, "json") == 0
    found = json.loads(capsys.readouterr().out)["measured"]
    assert (
        found["lines"] == 300 and found["events"] == 1.0 and found["raw"] == pytest.approx(sum(map(len, lines)) / 300)
    )
    assert 0 < found["take_in_s"] < 1 and found["hot"] > 0 and found["sample"] == str(sample)


def test_the_answer_in_words_says_what_it_rests_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plan, "measure", lambda sample: MEASURED)
    assert plan.plan(864, 100_000.0, 30, 2, 10.0, None, "text") == 0
    out = capsys.readouterr().out
    assert "instances  1" in out and "an estimate" in out and "40,000 lines per CPU-second" in out
