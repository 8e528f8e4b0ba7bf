"""Mistakes in a site's pattern that leave it readable: an unknown severity or source, and lines of another source."""

from __future__ import annotations

from pathlib import Path

import pytest

from correlator.selftest import situations
from faultline.checking import check_all
from parsers import extensions, patterns
from parsers.engine import LineParser
from parsers.formats import base
from parsers.recognition.lines import LINE_SHAPES, NAMES
from parsers.record import Origin
from parsers.sources import WRITTEN, unwritten


def site(folder: Path, **keys: object) -> Path:
    """A file with one pattern of a power supply that lost its mains."""
    table = {
        "id": "site-ups", "event": "site.ups_mains_lost", "literal": "mains lost", "regex": "^ups: mains lost on (?P<device>ups[0-9]+)",
        "example": "ups: mains lost on ups02", **keys,
    }  # fmt: skip
    path = folder / "ups.toml"
    path.write_text("[[pattern]]\n" + "".join(f"{name} = {value!r}\n" for name, value in table.items()))
    return path


@pytest.mark.parametrize("severity", ["bad", "fatal", "Error", "err", ""])
def test_a_severity_that_does_not_exist_is_refused_with_the_list(severity: str, tmp_path: Path) -> None:
    path = site(tmp_path, severity=severity)
    (problem,) = patterns.load([path]).check()
    there = "emerg, alert, crit, error, warning, notice, info, debug"
    assert str(problem) == f"{path}: site-ups: there is no severity {severity!r}, but {there}"


@pytest.mark.parametrize("severity", base.SEVERITIES)
def test_every_severity_of_a_line_may_be_named(severity: str, tmp_path: Path) -> None:
    assert patterns.load([site(tmp_path, severity=severity)]).check() == []


@pytest.mark.parametrize(
    ("sources", "installed", "says"),
    [
        (["syslog"], False, []),
        (["slurm", "job"], False, []),  # groups of sources
        (["syslogg"], False, ["the source 'syslogg'; did you mean 'syslog'?"]),
        (["syslog", "slurmctl", "kernell"], False, ["the source 'kernell'; did", "the source 'slurmctl'; did you mean 'slurmctld'?"]),
        (["harbour"], False, ["the source 'harbour'; there is bmc, central, "]),
        (["harbour"], True, ["; installed formats and receivers may write others"]),  # the package's own format may write it
        (["syslogg"], True, ["the source 'syslogg'; did you mean 'syslog'?"]),
    ],
)  # fmt: skip
def test_a_source_that_nothing_writes_is_reported(
    sources: list[str], installed: bool, says: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = extensions.Extension("faultline.formats", "harbour", "harbour:DOOR", "harbour-site")
    monkeypatch.setattr(
        extensions, "_known", {("faultline.formats", "harbour", "harbour:DOOR"): point} if installed else {}
    )
    path = site(tmp_path, sources=sources)
    found = unwritten(patterns.load([path]).entries)
    assert len(found) == len(says)
    for line, words in zip(found, says, strict=True):
        assert line.startswith(f"catalogue: {path}: site-ups: nothing built-in writes ") and words in line


def test_the_sources_that_built_in_parts_name_are_known() -> None:
    named = {source for entry in patterns.load().entries for source in entry.sources}
    named |= {source for source, _ in LINE_SHAPES} | {source for _, source in (*NAMES, *base._PROGRAMS)}
    assert len(named) > 20 and named - WRITTEN == set()


def test_check_reports_a_source_that_nothing_writes_and_calls_it_no_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(situations, "outcomes_of_lines", lambda *_: iter(()))
    config = tmp_path / "faultline.toml"
    config.write_text(f"patterns = [{str(site(tmp_path, sources=['syslogg']))!r}]\n")
    assert check_all(config, None) == 0
    assert " 0 wrong, 1 source named that nothing built-in writes, see below\n" in (out := capsys.readouterr().out)
    assert "\nOPEN   catalogue: " in out and "did you mean 'syslog'?" in out


LINE = b"Nov 24 09:12:01 pwr01 upsmond: ups: mains lost on ups02"


@pytest.mark.parametrize(
    ("sources", "line", "says"),
    [
        (["syslogg"], LINE, "pattern site-ups matches, but is for lines of syslogg; this one is of syslog"),
        (["kernel", "bmc"], LINE, "pattern site-ups matches, but is for lines of bmc, kernel; this one is of syslog"),
        (["syslog"], LINE, None),  # it is for such lines
        (["kernel"], LINE.replace(b"lost on", b"back on"), None),  # it does not match
    ],
)
def test_explain_says_when_a_pattern_is_for_lines_of_another_source(
    sources: list[str], line: bytes, says: str | None, tmp_path: Path
) -> None:
    parser = LineParser(patterns.load([site(tmp_path, sources=sources)]))
    said = [text for text in parser.explain(line, Origin()) if "site-ups matches" in text]
    assert said == ([says] if says else [])


@pytest.mark.parametrize("event", ["hall7.tripped", "Hall.tripped", "tripped", "hall.Tripped"])
def test_a_name_of_an_event_that_does_not_fit_is_refused_with_the_letters_that_do(event: str, tmp_path: Path) -> None:
    (problem,) = patterns.load([site(tmp_path, event=event)]).check()
    assert f"event {event!r} is not of the form family.name: a family of letters a-z" in str(problem)


@pytest.mark.parametrize(
    ("program", "source", "claims"),
    [
        ("nvidia-persistenced", None, None),
        ("pdud", None, "it only claims gpu.xid: a line of syslog by pdud may not report that"),
        ("pdud", "job_stdout", "it only claims gpu.xid: a line of job_stdout may not report that"),
    ],
)
def test_explain_says_when_the_writer_may_not_report_the_event(
    program: str, source: str | None, claims: str | None
) -> None:
    line = f"2026-02-28T16:29:24Z n1 {program}: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.".encode()
    parser = LineParser()
    said = parser.explain(line, Origin(source=source))
    assert [text.split(" (")[0] for text in said if "claims" in text] == ([claims] if claims else [])
    event = parser.parse([line], Origin(source=source))["event"][0]
    assert f"event {event}: pattern" in said[1] and (event == "other") == bool(claims)


@pytest.mark.parametrize(
    ("example", "says"),
    [
        ({"job_id": "999"}, "example has an unknown key 'job_id'; known: line, source, entities"),
        ({"entities": {"job": "7"}}, "example gives job=None, not '7': 'ups: mains lost on ups02'; it gives device"),
        ({"entities": {"device": "ups03"}}, "example gives device='ups02', not 'ups03': 'ups: mains lost on ups02'"),
    ],
)
def test_what_an_example_cannot_have_is_refused_with_what_it_can(
    example: dict[str, object], says: str, tmp_path: Path
) -> None:
    path = site(tmp_path)
    table = {"line": "ups: mains lost on ups02", **example}
    texts = ", ".join(f"{k} = {v!r}".replace("{'", "{ ").replace("': ", " = ") for k, v in table.items())
    path.write_text(path.read_text().replace("example = 'ups: mains lost on ups02'", f"example = {{ {texts} }}"))
    (problem,) = patterns.load([path]).check()
    assert str(problem) == f"{path}: site-ups: {says}"


def test_another_table_is_refused_with_the_one_that_there_is(tmp_path: Path) -> None:
    path = site(tmp_path)
    path.write_text(path.read_text() + "[[header]]\nname = 'ups'\n")
    assert str(patterns.load([path]).check()[0]) == f"{path}: -: unknown table 'header'; known: [[pattern]]"
