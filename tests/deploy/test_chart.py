"""The Helm chart: rendered by Helm's own code, judged by the schemas of Kubernetes; its configurations are read by the programs that
will read them. No Kubernetes runs here: what only one can show is said in docs/kubernetes.md."""

from __future__ import annotations

import base64
import functools
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from collector.agent.config import Config as AgentConfig
from collector.agent.config import validate
from faultline.config import Config
from faultline.exposure import missing

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/faultline"
HELM = Path("/opt/faultline-tests/helm")
BASE = {
    "tokens": {"existingSecret": "senders"},
    "service": {"tls": {"existingSecret": "fl-tls"}, "access": {"operate": ["ada"]}},
}
#: Each option that adds or removes an object, and those that write configuration.
VALUES: dict[str, dict[str, Any]] = {
    "base": BASE,
    "all": {
        **BASE,
        "imagePullSecrets": [{"name": "registry"}],
        "service": {
            **BASE["service"], "syslog": {"enabled": True}, "cluster": "alps", "publicUrl": "https://logs.example.org",
            "settings": {"users_can_write_syslog": False, "relays": ["10.0.0.5"]}, "extraConfig": "[store]\nhot_days = 3\n",
            "type": "LoadBalancer", "annotations": {"a": "b"}, "nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {}}, "priorityClassName": "high",
            "storage": {"size": "1Ti", "storageClassName": "managed-premium"},
        },
        "networkPolicy": {
            "from": [{"ipBlock": {"cidr": "10.224.0.0/16"}}],
            "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.25/32"}}], "ports": [{"port": 25, "protocol": "TCP"}]}],
        },
        "agent": {
            "nodeNames": {"aks-gpu-vmss000001": "gpu001", "aks-gpu-vmss000002": "gpu002"}, "kmsg": {"enabled": False},
            "ca": {"existingConfigMap": "site-ca"}, "paths": ["/var/log/pods/*/slurmd/*.log"], "hostPaths": ["/home"],
            "extraConfig": "[sources.nvml]\nenabled = false\n", "nodeSelector": {"a": "b"}, "affinity": {"nodeAffinity": {}},
        },
    },
    "agent only": {
        "tokens": {"existingSecret": "senders"}, "service": {"enabled": False},
        "agent": {"server": "https://faultline.example.org:8514", "dcgm": {"enabled": False}, "priority": {"create": False}},
    },
    "service only, behind a proxy": {"tokens": {"create": True}, "service": {"insecure": True}, "agent": {"enabled": False}},
    "another key": {**BASE, "tokens": {"existingSecret": "senders", "key": "agents"}},
    "without TLS": {**BASE, "service": {"insecure": True}},
    "another name": {**BASE, "nameOverride": "logs"},
    "no token": {"service": BASE["service"]},
    "open": {"tokens": BASE["tokens"]},
    "no server": {"tokens": BASE["tokens"], "service": {"enabled": False}},
    "a word wrong": {**BASE, "agent": {"tolerations": [], "tolerration": []}},
    "no node": {**BASE, "agent": {"nodeNames": {"aks-1": "two words"}}},
}  # fmt: skip


@functools.cache
def _all() -> dict[str, Any]:
    """One process renders everything."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("rendered.py")), str(CHART)], input=json.dumps(VALUES), text=True,
        capture_output=True, env={**os.environ, "PYTHONPATH": str(HELM)}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout))


@pytest.fixture
def chart() -> dict[str, Any]:
    if not HELM.exists():
        pytest.skip("no Helm on this machine (tests/prepare.sh lays it at /opt/faultline-tests/helm)")
    return _all()


def _objects(chart: dict[str, Any], values: str) -> dict[str, dict[str, Any]]:
    assert "error" not in chart[values], chart[values]
    return {f"{one['kind']} {one['metadata']['name']}": one for one in chart[values]["manifests"]}


def _agent(objects: dict[str, dict[str, Any]]) -> AgentConfig:
    return validate(tomllib.loads(objects["ConfigMap fl-faultline-agent"]["data"]["agent.toml"]), "chart")


def _service(objects: dict[str, dict[str, Any]]) -> Config:
    return Config.model_validate(tomllib.loads(objects["ConfigMap fl-faultline-service"]["data"]["faultline.toml"]))


@pytest.mark.parametrize(
    "values", [pytest.param(v, marks=pytest.mark.long if n in (0, 2) else ()) for n, v in enumerate([*VALUES][:4])]
)
def test_kubernetes_schemas_and_helms_lint_accept_every_manifest(chart: dict[str, Any], values: str) -> None:
    assert chart[values].get("error") is None
    assert chart[values]["wrong"] == []
    assert chart[values]["lint"] == []


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ("no token", "tokens.existingSecret"),
        ("open", "service.tls.existingSecret"),
        ("no server", "agent.server"),
        ("a word wrong", "tolerration"),
        ("no node", "aks-1"),
    ],
)
def test_what_would_be_open_or_is_unknown_is_not_rendered(chart: dict[str, Any], values: str, says: str) -> None:
    assert says in chart[values]["error"]


def test_the_programs_read_the_configurations_that_are_rendered(
    chart: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    base, full = _objects(chart, "base"), _objects(chart, "all")
    assert missing(_service(base)) == []
    assert _service(base).syslog == ()
    config = _service(full)
    assert (config.cluster, config.store.hot_days, config.relays) == ("alps", 3, ("10.0.0.5",))
    assert [one.transport for one in config.syslog or ()] == ["udp", "tcp"]
    assert _agent(base).server == "https://fl-faultline.slurm.svc:8514"
    scrape = _agent(base).enabled()["scrape"][1]
    assert scrape["urls"] == ["http://nvidia-dcgm-exporter.gpu-operator.svc:9400/metrics"] and scrape["own_only"]
    monkeypatch.setenv("FAULTLINE_HOST", "aks-gpu-vmss000002")
    agent = _agent(full)
    assert (agent.host, agent.agent, agent.cluster) == ("gpu002", "gpu002", "alps")
    assert "nvml" not in agent.enabled() and "kmsg" not in agent.enabled()
    assert agent.enabled()["files"][1]["paths"] == ["/var/log/pods/*/slurmd/*.log"]


@pytest.mark.parametrize("changed", ["another key", "without TLS", "another name"])
def test_a_changed_configuration_restarts_the_agents(chart: dict[str, Any], changed: str) -> None:
    """It is mounted as one file, which a running pod does not see change."""

    def of(values: str) -> tuple[str, str]:
        objects = [one for one in chart[values]["manifests"] if one["metadata"]["name"].endswith("-agent")]
        (config,) = (one["data"]["agent.toml"] for one in objects if one["kind"] == "ConfigMap")
        (pods,) = (one["spec"]["template"] for one in objects if one["kind"] == "DaemonSet")
        return config, pods["metadata"]["annotations"]["checksum/config"]

    before, after = of("base"), of(changed)
    assert before[0] != after[0] and before[1] != after[1]


def _pod(objects: dict[str, dict[str, Any]], name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    spec = objects[name]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    return spec, container


@pytest.mark.parametrize("values", ["base", "all"])
def test_the_service_runs_as_nobody_and_writes_to_volumes_only(chart: dict[str, Any], values: str) -> None:
    spec, container = _pod(_objects(chart, values), "StatefulSet fl-faultline")
    rights = container["securityContext"]
    assert spec["securityContext"]["runAsNonRoot"] and rights["readOnlyRootFilesystem"]
    assert (rights["allowPrivilegeEscalation"], rights["capabilities"]) == (False, {"drop": ["ALL"]})
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/var/lib/faultline", "/var/cache/faultline", "/tmp"}
    assert not spec["automountServiceAccountToken"]


def test_probes_ask_routes_that_the_service_has(chart: dict[str, Any]) -> None:
    from web.access.authentication import OPEN

    _, container = _pod(_objects(chart, "base"), "StatefulSet fl-faultline")
    asked = {container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert asked == {"/healthz", "/readyz"} and asked <= OPEN
    assert {container[name]["httpGet"]["scheme"] for name in ("startupProbe", "livenessProbe")} == {"HTTPS"}
    _, plain = _pod(_objects(chart, "service only, behind a proxy"), "StatefulSet fl-faultline")
    assert plain["livenessProbe"]["httpGet"]["scheme"] == "HTTP"


@pytest.mark.parametrize("values", ["base", "all", "agent only"])
def test_the_agent_only_reads_the_node(chart: dict[str, Any], values: str) -> None:
    spec, container = _pod(_objects(chart, values), "DaemonSet fl-faultline-agent")
    of_node = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume}
    written = {of_node[m["name"]] for m in container["volumeMounts"] if m["name"] in of_node and not m.get("readOnly")}
    assert written == {"/var/lib/faultline-agent", "/var/spool/faultline", "/run/faultline"}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert {"memory", "cpu"} <= set(container["resources"]["limits"])
    assert spec["tolerations"] == [{"operator": "Exists"}]
    (host,) = container["env"]
    assert host["name"] == "FAULTLINE_HOST" and host["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert _agent(_objects(chart, values)).spool in mounts


def test_dev_kmsg_is_what_makes_the_agent_privileged(chart: dict[str, Any]) -> None:
    for values, has in (("base", True), ("all", False)):
        spec, container = _pod(_objects(chart, values), "DaemonSet fl-faultline-agent")
        assert ("/dev/kmsg" in json.dumps(spec["volumes"])) == has
        assert container["securityContext"].get("privileged", False) == has
        # The API server refuses both together, and no schema says so.
        assert ("allowPrivilegeEscalation" in container["securityContext"]) != has


def test_the_agents_class_of_priority_preempts_no_job(chart: dict[str, Any]) -> None:
    objects = _objects(chart, "base")
    (made,) = [one for one in objects.values() if one["kind"] == "PriorityClass"]
    assert made["preemptionPolicy"] == "Never"
    assert _pod(objects, "DaemonSet fl-faultline-agent")[0]["priorityClassName"] == made["metadata"]["name"]


def test_the_agent_sees_the_services_certificate_and_never_its_key(chart: dict[str, Any]) -> None:
    spec, _ = _pod(_objects(chart, "base"), "DaemonSet fl-faultline-agent")
    (ca,) = [volume for volume in spec["volumes"] if volume["name"] == "ca"]
    assert [item["key"] for item in ca["secret"]["items"]] == ["ca.crt"]


def test_selectors_find_the_pods_and_nothing_else(chart: dict[str, Any]) -> None:
    objects = _objects(chart, "all")
    service = objects["StatefulSet fl-faultline"]["spec"]["template"]["metadata"]["labels"].items()
    agent = objects["DaemonSet fl-faultline-agent"]["spec"]["template"]["metadata"]["labels"].items()
    selectors = (
        objects["Service fl-faultline"]["spec"]["selector"],
        objects["PodDisruptionBudget fl-faultline"]["spec"]["selector"]["matchLabels"],
        objects["NetworkPolicy fl-faultline"]["spec"]["podSelector"]["matchLabels"],
    )
    for selector in selectors:
        assert selector.items() <= service and not selector.items() <= agent


def test_tokens_that_are_made_are_long_and_kept(chart: dict[str, Any]) -> None:
    secret = _objects(chart, "service only, behind a proxy")["Secret fl-faultline-tokens"]
    assert len(base64.b64decode(secret["data"]["token"])) == 48
    assert secret["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert not [name for name in _objects(chart, "base") if name.startswith("Secret ")]
