"""The documentation is compared with the program: commands, links, examples and the generated page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from correlator.edges import load
from parsers import patterns
from tests.line_parser import line_parser

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.glob("*.md"))]
COMMANDS = (
    "access",
    "demo",
    "serve",
    "ingest",
    "parse",
    "query",
    "incidents",
    "node",
    "trace",
    "plan",
    "why",
    "report",
    "sources",
    "archive",
    "store",
    "agent",
    "slurm",
    "hook",
    "check",
    "backup",
    "verify",
    "restore",
)


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text(DOCS / "extending.md"), re.MULTILINE | re.DOTALL)


def test_every_file_with_a_long_test_is_in_the_table_of_long_tests() -> None:
    """In the first column: beside it stands what it shows, and where `make test` shows that."""
    section = text(DOCS / "testing.md").partition("\n## Long tests")[2].partition("\n## ")[0]
    named = set(re.findall(r"\w+\.py", " ".join(re.findall(r"^\| (.*?) \| ", section, re.MULTILINE))))
    tests = ROOT / "tests"
    long = {
        path.name
        for path in tests.rglob("*.py")
        if "mark.long" in text(path) and path.relative_to(tests).parts[0] not in ("captures", "cluster")
    }
    assert len(long) > 80
    # The mark itself, and its test; tests/cluster is named as a folder.
    missing = long - named - {"conftest.py", "test_one_of_each_mark.py", "test_docs.py"}
    assert not missing
    assert "`cluster/`" in section


def test_the_page_of_edges_is_what_the_generator_writes() -> None:
    done = subprocess.run([sys.executable, str(DOCS / "generate.py"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_linked_file_exists(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", text(page))
    missing = [
        link
        for link in links
        if not re.match(r"[a-z]+:", link) and not (page.parent / link.split("#")[0]).resolve().exists()
    ]
    assert not missing


def test_sections_of_measurements_that_are_linked_exist_and_have_a_date() -> None:
    headings = re.findall(r"^#{2,3} (.*)$", text(DOCS / "measurements.md"), re.MULTILINE)
    known = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    linked = {anchor for page in PAGES for anchor in re.findall(r"\(measurements\.md#([^)]+)\)", text(page))}
    assert linked and linked - known == set()
    dated = re.compile(r"\d{1,2} (?:October|November|December)|20\d\d-\d\d-\d\d")
    assert [heading for heading in headings if not dated.search(heading)] == []


def test_every_benchmark_is_in_the_table() -> None:
    files = {p.name for p in (ROOT / "benchmarks").glob("*.py") if "__main__" in text(p)}
    rows = re.findall(
        r"^\| `python benchmarks/(\w+\.py)[^|]*(?:\|[^|]*){3}\|$", text(DOCS / "benchmarks.md"), re.MULTILINE
    )
    assert set(rows) == files


def test_every_test_that_a_document_or_a_comment_names_is_there() -> None:
    tests = {path.relative_to(ROOT / "tests").as_posix() for path in (ROOT / "tests").rglob("test_*.py")}
    rooms = "parsers|store|collector|correlator|queries|web|faultline"
    docs = {p for place in ("docs", "tests/cluster") for p in (ROOT / place).rglob("*.md")}
    code = {p for room in (*rooms.split("|"), "tests") for p in (ROOT / room).rglob("*.py")}
    missing = set()
    for page in (*PAGES, ROOT / "Makefile", *docs, *code):
        for found in re.finditer(
            rf"(?<![\w/.])(?:tests/)?((?:{rooms}|cluster|deploy)/[\w/]*test_\w+\.py)\b", text(page)
        ):
            if found[1] not in tests:
                missing.add(f"{page.relative_to(ROOT)}: {found[0]}")
    assert not missing


def test_the_targets_of_make_that_the_readme_names_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", text(ROOT / "Makefile"), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z]+)", text(ROOT / "README.md")))
    assert {"demo", "test"} <= named <= targets


def test_every_command_is_in_the_readme_or_the_docs_and_no_other() -> None:
    everything = "\n".join(map(text, PAGES))
    assert [c for c in COMMANDS if not re.search(rf"faultline {c}\b", everything)] == []
    from faultline import cli

    known = {info.name or getattr(info.callback, "__name__", "?") for info in cli.app.registered_commands}
    assert known == set(COMMANDS)
    shown = set(re.findall(r"(?:^    |`)faultline ([a-z]+)", everything, re.MULTILINE))
    assert shown <= known


def test_options_that_the_docs_show_are_known_to_their_command() -> None:
    from faultline import backup_command, cli, plan, store_command

    source = "\n".join(text(Path(str(module.__file__))) for module in (cli, backup_command, plan, store_command))
    known = set(re.findall(r'"(--[a-z-]+)"', source)) | {
        "--" + name.replace("_", "-") for name in re.findall(r"^    (\w+): (?:Annotated|Data|Server|Since|Until|Config)", source, re.M)
    }  # fmt: skip
    # The agent's commands have their own parsers: they import nothing of the server's.
    for place in ("agent", "agent/slurm_setup"):
        known |= set(re.findall(r'"(--[a-z-]+)"', text(ROOT / "collector" / place / "commands.py")))
    used: set[str] = set()
    for page in (
        ROOT / "README.md",
        DOCS / "agent.md",
        DOCS / "operations.md",
        DOCS / "extending.md",
        DOCS / "correlation.md",
    ):
        for line in re.findall(r"(?:^    |`)(faultline [a-z]+[^`\n]*)", text(page), re.MULTILINE):
            used |= set(re.findall(r"(?<!\S)(--[a-z-]+)", line))
    assert used, "the docs show options"
    assert used <= known


def test_the_toml_of_the_docs_is_right(tmp_path: Path) -> None:
    found = 0
    for number, block in enumerate(blocks("toml")):
        path = tmp_path / f"{number}.toml"
        path.write_text(block)
        if "[[pattern]]" in block:
            assert [str(p) for p in patterns.load([path]).check()] == []
        if "[[edge]]" in block:
            assert [str(p) for p in load.load([path])[1]] == []
        found += "[[edge]]" in block or "[[pattern]]" in block
    assert found == 2  # the others are pyproject.toml and a dashboard: test_extending.py


def test_the_indented_edges_of_the_correlation_page_are_right(tmp_path: Path) -> None:
    shown = re.findall(r"(?:^    \S.*\n|^\n(?=    ))+", text(DOCS / "correlation.md"), re.MULTILINE)
    (block,) = [b for b in shown if "[[edge]]" in b]
    path = tmp_path / "site.toml"
    path.write_text(re.sub(r"^    ", "", block, flags=re.MULTILINE))
    found, problems = load.load([path])
    assert problems == []
    assert "SITE-CDU1" in {e.id for e in found} and "E24" not in {e.id for e in found}


def test_the_notifier_of_the_docs_writes_its_line(tmp_path: Path) -> None:
    from faultline.notify.message import Message

    notifier = _run(next(b for b in blocks("python") if "WALL = Notifier" in b))["WALL"]
    notifier.sender({"path": str(tmp_path / "wall")})(Message("I-1", "opened", "impact", "a link", "http://x"))
    assert (tmp_path / "wall").read_text() == "[impact] New: a link http://x\n"


def test_the_format_of_the_docs_reads_its_line() -> None:
    import polars as pl

    from parsers.record import Origin

    namespace = _run(next(b for b in blocks("python") if "BMC = Format" in b))
    read = namespace["BMC"]
    frame = pl.DataFrame({"i": [0, 1], "text": ["BMC|2026-02-28T16:29:24Z|gpu02|Fan 3 failed", "BMC|nothing"]})
    found = read.read(frame.filter(read.accepts), Origin())
    assert found.select("i", "host", "message").rows() == [(0, "gpu02", "Fan 3 failed")]
    assert str(found["time"][0]) == "2026-02-28 16:29:24"


def test_the_kind_of_the_docs_is_concluded() -> None:
    from tests.correlator.making import event, world

    namespace = _run(next(b for b in blocks("python") if "COOLANT_LEAK = Kind" in b))
    found = namespace["leaks"](world([event("coolant.leak", 0.0, "n1", "coolant leak", device="tray 3")]))
    assert [(fact.kind, fact.host, fact.attrs) for fact in found] == [("coolant.leak", "n1", {"tray": "tray 3"})]


def test_the_report_of_the_docs_is_written() -> None:
    from collector.ingest import Ingest
    from correlator.engine import correlate
    from queries import reports
    from store import open_store

    report = _run(next(b for b in blocks("python") if "REPORT = Report" in b))["REPORT"]
    with open_store(None) as store:
        Ingest(store, parser=line_parser()).run([ROOT / "faultline/capture/mgmt_flap_long"])
        correlate(store)
        sections = tuple(report.build(reports.Reader(store, None, None)))
    page = reports.render(reports.Document(report.name, report.title, report.description, None, None, sections), "md")
    assert "gpu02" in page


def _run(code: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "example", "__file__": str(DOCS / "example.py")}
    exec(compile(code, "docs/extending.md", "exec"), namespace)
    return namespace


def test_the_drawing_is_readable_without_colour_or_style() -> None:
    drawing = text(DOCS / "rooms.svg")
    assert "prefers-color-scheme: dark" in drawing
    assert "<title" in drawing and "<desc" in drawing
    assert not re.search(r"(?:href|src)=|@import|url\((?!#)", drawing), "nothing from elsewhere"
