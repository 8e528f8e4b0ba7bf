"""Run by ``test_chart.py`` with Helm's library and Kubernetes' schemas on its path: renders the chart for each set of
values on standard input, and prints manifests, what Helm's lint and the schemas say, or the error."""

from __future__ import annotations

import json
import sys
from typing import Any

import kubernetes_validate
import yaml
from helm_python.chart import Chart, lint
from helm_python.errors import HelmError

#: The versions whose schemas judge the manifests: the chart's oldest, and the newest that the package ships.
VERSIONS = ("1.29", "1.37")


def _wrong(manifest: dict[str, Any]) -> list[str]:
    found = []
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"{version} {manifest['kind']}: {error.message}")
    return found


def _rendered(chart: Chart, values: dict[str, Any]) -> dict[str, Any]:
    try:
        texts = chart.render(values, name="fl", namespace="slurm")
    except HelmError as error:
        return {"error": str(error)}
    manifests = [one for text in texts.values() for one in yaml.safe_load_all(text) if one]
    return {"manifests": manifests, "wrong": [line for one in manifests for line in _wrong(one)]}


def main(folder: str) -> None:
    asked = json.load(sys.stdin)
    with Chart.load(folder) as chart:
        done = {name: _rendered(chart, values) for name, values in asked.items()}
    for name, values in asked.items():
        if "error" not in done[name]:
            report = lint(folder, values, strict=True)
            done[name]["lint"] = [line["error"] for line in report["messages"] if line["severity"] > 1]
    json.dump(done, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
