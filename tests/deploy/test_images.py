"""The Dockerfiles and the compose file, as far as no image is built: base images are not in the registries that tests reach."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/container"
KNOWN = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD"}


def _steps(name: str) -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (FOLDER / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [
        (line.split()[0], line.partition(" ")[2]) for line in text.replace("\\\n", " ").splitlines() if line.strip()
    ]


@pytest.mark.parametrize("name", ["Dockerfile.service", "Dockerfile.agent"])
def test_every_step_is_known_and_finds_its_files(name: str) -> None:
    steps = _steps(name)
    assert {verb for verb, _ in steps} <= KNOWN
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    copied = [words.split()[:-1] for verb, words in steps if verb == "COPY" and not words.startswith("--from")]
    sources = [word for words in copied for word in words]
    assert {package.rstrip("*") for package in packages} <= set(sources)
    for source in sources:
        assert (ROOT / source).exists() and f"!{source}" in ignored
    for base in (words.split()[0] for verb, words in steps if verb == "FROM"):
        assert re.fullmatch(r"[\w./-]+:\d[\w.-]+", base), f"{base}: no version"


@pytest.mark.parametrize("name", ["Dockerfile.service", "Dockerfile.agent"])
def test_what_pip_installs_is_copied_before(name: str) -> None:
    """The scripts that pyproject.toml names, and files of packages, which may be links to elsewhere."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    data = [
        package.replace(".", "/") + "/" + glob for package, globs in declared["package-data"].items() for glob in globs
    ]
    copied = [
        word for verb, words in _steps(name) if verb == "COPY" and "--from" not in words for word in words.split()[:-1]
    ]
    for file in [ROOT / script for script in declared["script-files"]] + [
        one for glob in data for one in ROOT.glob(glob)
    ]:
        assert any(file.resolve().is_relative_to(ROOT / source) for source in copied), file


@pytest.mark.parametrize("name", ["Dockerfile.service", "Dockerfile.agent"])
def test_what_is_installed_is_pinned(name: str) -> None:
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (install,) = [words for verb, words in _steps(name) if verb == "RUN" and "pip install" in words]
    assert "-c constraints.txt" in install
    asked = re.search(r"'\.\[([\w,]+)\]'", install)
    assert asked
    wanted = {re.split(r"[><=\[]", one)[0].lower() for extra in asked[1].split(",") for one in extras[extra]}
    assert wanted <= pinned
    if name == "Dockerfile.agent":
        assert wanted == {"zstandard", "nvidia-ml-py"}


def test_the_service_is_a_number_that_is_not_root() -> None:
    assert [words for verb, words in _steps("Dockerfile.service") if verb == "USER"] == ["10001:10001"]
    chart = (ROOT / "deploy/helm/faultline/templates/service.yaml").read_text(encoding="utf-8")
    assert "runAsUser: 10001" in chart


def test_compose_builds_these_files_and_the_service_has_no_rights() -> None:
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))["services"]
    for name, service in services.items():
        assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).exists()
        assert service["read_only"], name
    assert services["service"]["cap_drop"] == ["ALL"] and services["service"]["user"] == "10001:10001"
    plain = [mount for mount in services["agent"]["volumes"] if not mount.endswith(":ro")]
    assert plain == ["/var/lib/faultline-agent:/var/lib/faultline-agent", "/var/spool/faultline:/var/spool/faultline"]
