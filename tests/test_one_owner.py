"""Questions that have one owner: nobody else answers them by hand. From the syntax trees, so a comment changes nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.syntax_trees import nodes_of
from tests.test_house import ALONE, ROOT, sources

#: Where names of hosts lose their domain, and where two boot times are compared.
HOST_NAMES, BOOTS = ("parsers/host_names.py", "store/functions.py"), "store/boots.py"

#: Other texts that are cut at a dot: nobody's names. A new one belongs here only if no host can be in it.
NO_HOSTS = {
    "correlator/evidence/calibration.py": ("category.split('.', 1)", "a category of a verdict"),
    "correlator/facts/world.py": ("device.lower().split('.')", "a PCI address and its function"),
    "correlator/gather/events.py": ("event.split('.', 1)", "an event"),
    "parsers/documents/link_counters.py": ("PurePosixPath(origin.path or '').name.split('.')", "a file: before or after"),
    "parsers/documents/lldpctl.py": ("key.split('.')", "a key of lldpctl's output"),
    "parsers/documents/slurm_json.py": ("label.rpartition('.')", "a step of a job"),
    "parsers/events.py": ("step_tag.partition('.')", "a step of a job"),
    "parsers/formats/jsonl.py": ("(text or '').partition('.')", "a number"),
    "queries/kql/functions/encoding.py": ("text.split('.')", "each label of a name: KQL's punycode functions"),
    "queries/kql/functions/parsing.py": ("text.strip().split('.') ; name.rpartition('.')", "a version; a file's extension"),
    "store/duckdb/visible.py": ("name.partition('.')", "a table and its schema"),
    "store/questions/outages.py": ("func.split_part(e.event, const('.'), const(1))", "an event"),
    "web/glyphs.py": ("(event or 'other').partition('.')", "an event"),
    "web/shaping.py": ("base.split('.')", "a file's name"),
}  # fmt: skip

_CUTS = ("split", "rsplit", "partition", "rpartition", "index", "rindex", "find", "rfind", "split_part", "splitn", "split_exact")  # fmt: skip
#: A regular expression that takes what stands before a dot, or drops what follows it.
_PATTERN = re.compile(r"^\^?\(?\[\^\.(?:\\s)?\][*+]\)?|\\\.\.[*+]\$?$")
_BY_PATTERN = ("compile", "extract", "extract_groups", "sub", "replace", "match", "fullmatch", "search", "group_of")


def cuts(path: Path) -> Iterator[str]:
    """Calls that cut a text at a dot, as source."""
    for node in nodes_of(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            given = [n.value for a in node.args for n in ast.walk(a) if isinstance(n, ast.Constant)]
            texts = [value.decode("latin-1") if isinstance(value, bytes) else value for value in given]
            if (name in _CUTS and "." in texts) or (
                name in _BY_PATTERN and any(isinstance(one, str) and _PATTERN.search(one) for one in texts)
            ):
                yield ast.unparse(node)


def test_names_of_hosts_are_cut_in_one_place() -> None:
    """What runs on compute nodes imports nothing of ours, and has its own: its batches pass the service's rule."""
    found: dict[str, set[str]] = {}
    for path in sources():
        place = path.relative_to(ROOT).as_posix()
        if place not in HOST_NAMES and not place.startswith(ALONE) and (own := set(cuts(path))):
            found[place] = own
    by_hand = {place: left for place, own in found.items()
               if (left := {one for one in own if one not in NO_HOSTS.get(place, ("", ""))[0].split(" ; ")})}  # fmt: skip
    assert not by_hand, "use parsers.host_names (short_name in store.functions for SQL)"
    assert set(NO_HOSTS) == set(found), "this file cuts nothing any more"


@pytest.mark.parametrize(
    "source",
    [
        "host.split('.')[0]", "host.lower().partition('.')[0]", "host[: host.find('.')]", "func.split_part(lines.c.host, const('.'), const(1))",
        "pl.col('host').str.extract(r'^([^.]*)')", "re.sub(r'\\..*', '', host)", "re.compile(r'[^.]+').match(host)", "host.split(b'.', 1)",
        "host.split(sep, 1) if (sep := x) else host.rsplit('.', 1)",
    ],
)  # fmt: skip
def test_each_way_to_cut_one_is_found(source: str, tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text(source)
    assert list(cuts(path))


def test_the_same_boot_is_said_in_one_place() -> None:
    """The limit has one value, and who needs more than the question imports it by its name."""
    named = re.compile(r"^(\w*SAME_BOOT\w*)(?::[^=]*)? = ", re.MULTILINE)
    found = {path.relative_to(ROOT).as_posix(): named.findall(path.read_text("utf-8")) for path in sources()}
    assert {place: names for place, names in found.items() if names} == {BOOTS: ["SAME_BOOT_S"]}


#: The sources of a job's own output, and the files that still write them out: texts of SQL, and a few that decode or tick.
OUTPUT_OWNER = "parsers/record.py"
WRITE_THEM_OUT = {
    "collector/receivers/ndjson_records.py", "collector/receivers/wrapped.py", "correlator/clocks/offsets.py", "correlator/live/window.py",
    "store/blocks.py",
}  # fmt: skip


def lists_of_output(path: Path) -> list[int]:
    """The lines with a tuple, list or set that names a job's standard output and its standard error."""
    if "job_stderr" not in path.read_text(encoding="utf-8"):
        return []
    return [
        node.lineno
        for node in nodes_of(path)
        if isinstance(node, ast.Tuple | ast.List | ast.Set)
        and {"job_stdout", "job_stderr"} <= {one.value for one in node.elts if isinstance(one, ast.Constant)}
    ]


def test_the_sources_of_a_jobs_output_are_listed_in_one_place() -> None:
    found = {place for path in sources() if lists_of_output(path) and (place := path.relative_to(ROOT).as_posix())}
    assert found == {OUTPUT_OWNER, *WRITE_THEM_OUT}, "use parsers.record.JOB_OUTPUT"


@pytest.mark.parametrize(
    "source", ['X = ("job_stdout", "job_stderr")', 'f(["syslog", "job_stderr", "job_stdout"])', 'x in {"job_stdout", "job_stderr"}']
)  # fmt: skip
def test_each_list_of_them_is_found(source: str, tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text(source)
    assert lists_of_output(path) == [1]
