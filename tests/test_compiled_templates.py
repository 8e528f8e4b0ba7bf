"""Applications of one test process share compiled templates, and never one of an older text."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest

from tests.compiled_templates import Compiled


def environment(folder: Path, compiled: Compiled) -> jinja2.Environment:
    return jinja2.Environment(loader=jinja2.FileSystemLoader(folder), bytecode_cache=compiled)


def test_a_template_is_compiled_once_and_anew_when_its_text_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, page = Compiled(), tmp_path / "page.html"
    page.write_text("one {{ n }}")
    assert environment(tmp_path, compiled).get_template("page.html").render(n=1) == "one 1"
    with monkeypatch.context() as patch:
        patch.setattr(jinja2.Environment, "compile", lambda *_, **__: pytest.fail("compiled again"))
        assert environment(tmp_path, compiled).get_template("page.html").render(n=2) == "one 2"
    page.write_text("two {{ n }}")
    assert environment(tmp_path, compiled).get_template("page.html").render(n=3) == "two 3"
