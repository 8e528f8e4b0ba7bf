"""What templates read is given to them: Jinja takes a name that nothing gives as empty, and its part of the page is gone."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import fixture
import jinja2
import pytest
from fastapi.testclient import TestClient
from jinja2 import meta, nodes
from triaged import FLAP

from tests.correlator.rows import concluded
from tests.syntax_trees import nodes_of
from web import pages
from web.app import create_app

WEB = Path(pages.__file__).parent
HTML = {"accept": "text/html"}
#: Pages whose values no call names one by one.
PATHS = (
    "/", "/incidents?q=nothing-like-it", "/incidents?group=root", "/incidents/I1", "/incidents/I0", "/jobs", "/jobs?q=nothing-like-it", "/jobs/15",
    "/jobs/16", "/nodes", "/nodes?q=nothing-like-it", "/nodes/gpu02", "/repairs", "/fleet?incident=I0", "/reports", "/explore", "/sources",
    "/dashboards", "/dashboards/network?tables=yes", "/search?q=script", "/search?q=nothing-like-it",
)  # fmt: skip
#: Those that say how to begin where nothing is stored.
EMPTY = ("/", "/jobs", "/nodes", "/fleet", "/repairs", "/sources", "/search?q=x")
#: What parts of several pages read and only some of these give.
OPTIONAL = {"of_run", "offline", "ranged"}
#: A bundle is a file: it sends no messages and saves no answers.
NOT_OF_A_BUNDLE = {"messages", "asker", "author"}


@pytest.fixture(scope="module")
def given() -> dict[str, set[str]]:
    """Template -> the names that its pages give it: those of the calls in web, and what pages that were opened had."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    shared: set[str] = set()
    for path in WEB.rglob("*.py"):
        for call in (node for node in nodes_of(path) if isinstance(node, ast.Call)):
            inner = call.func.value if isinstance(call.func, ast.Attribute) else None
            values = [*call.args, *(inner.args if isinstance(inner, ast.Call) else [])]
            for name in (one.value for one in values if isinstance(one, ast.Constant)):
                if isinstance(name, str) and name.endswith(".html"):
                    found[name] |= {one.arg for one in call.keywords if one.arg}
    with pytest.MonkeyPatch.context() as patch:
        for method in ("render", "generate"):
            patch.setattr(jinja2.Template, method, _noting(found, getattr(jinja2.Template, method)))
        by_pages = pages.shared_by_pages

        def noted(*arguments: Any) -> dict[str, Any]:
            values = by_pages(*arguments)
            shared.update(values)
            return values

        patch.setattr(pages, "shared_by_pages", noted)
        empty = fixture.build()
        tables = "SELECT schema_name || '.' || table_name FROM duckdb_tables() WHERE NOT internal"
        for (table,) in empty.con.execute(tables).fetchall():
            empty.con.execute(f"DELETE FROM {table}")
        for store, paths in ((fixture.build(), PATHS), (empty, EMPTY)):
            client = TestClient(create_app(store), headers=HTML)
            for path in paths:
                assert client.get(path).status_code == 200, path
    return {name: names if name == "bundle.html" else names | shared for name, names in found.items()}


def _noting(found: dict[str, set[str]], method: Any) -> Any:
    def noting(self: jinja2.Template, **values: Any) -> Any:
        found[self.name or ""].update(values)
        return method(self, **values)

    return noting


@cache
def _parsed(name: str) -> nodes.Template:
    environ = pages.environment()
    assert environ.loader is not None
    return environ.parse(environ.loader.get_source(environ, name)[0])


def _parts(name: str, known: dict[str, nodes.Template] | None = None) -> dict[str, nodes.Template]:
    """The template with all that it extends, includes and imports."""
    known = {} if known is None else known
    if name not in known:
        known[name] = _parsed(name)
        for other in meta.find_referenced_templates(known[name]):
            assert other is not None, f"{name} computes the name of a template"
            _parts(other, known)
    return known


@cache
def _read(name: str) -> frozenset[str]:
    """The names that a template reads and does not give itself."""
    return frozenset(meta.find_undeclared_variables(_parsed(name)))


@cache
def _sets(name: str) -> frozenset[str]:
    return frozenset(_set(_parsed(name)))


def _set(tree: nodes.Template) -> Iterator[str]:
    """The names that a template sets, imports or declares as a macro."""
    for one in tree.find_all((nodes.Assign, nodes.AssignBlock)):
        yield from (target.name for target in _targets(one.target))
    yield from (one.name for one in tree.find_all(nodes.Macro))
    yield from (one.target for one in tree.find_all(nodes.Import))
    for loop in tree.find_all(nodes.For):  # an included part sees the names of the loop around it
        yield from (target.name for target in _targets(loop.target) if loop.find(nodes.Include))


def _targets(target: nodes.Node) -> Iterator[nodes.Name]:
    yield from [target] if isinstance(target, nodes.Name) else target.find_all(nodes.Name)


def unknown(name: str, names: set[str]) -> list[str]:
    """What parts of a page read and nothing gives or sets."""
    parts = _parts(name)
    names = names | OPTIONAL | (NOT_OF_A_BUNDLE if name == "bundle.html" else set())
    known = {*pages.environment().globals, *names, *(each for part in parts for each in _sets(part))}
    return [f"{name}: {part} reads {missing}" for part in parts for missing in _read(part) - known]


def test_every_name_that_a_template_reads_is_given_to_it(given: dict[str, set[str]]) -> None:
    wrong = sorted(one for name, names in given.items() for one in unknown(name, names))
    assert not wrong, "\n".join(wrong)


def test_every_template_is_a_page_or_a_part_of_one(given: dict[str, set[str]]) -> None:
    read = {part for name in given for part in _parts(name)}
    assert {name for name in pages.environment().list_templates() if name.endswith(".html")} == read


def test_an_incident_with_messages_leads_to_them_beside_its_advice() -> None:
    with concluded(FLAP) as store:
        name = store.rows("SELECT incident_id FROM model.incidents")[0]["incident_id"]
        text = TestClient(create_app(store), headers=HTML).get(f"/incidents/{name}").text
    assert re.search(r'<a href="#tell">\s*1 message to users\s*</a>', text) and 'id="tell"' in text


def test_a_jobs_page_has_a_card_for_the_node_that_its_evidence_names() -> None:
    client = TestClient(create_app(fixture.build()), headers=HTML)
    section = client.get("/jobs/15").text.partition('aria-labelledby="nds"')[2].partition("</section>")[0]
    card = section.partition('<div class="node bad">')[2].partition("</p>")[0]
    assert "gpu02" in card and "in the evidence" in card and "nic.link_down at " in card
