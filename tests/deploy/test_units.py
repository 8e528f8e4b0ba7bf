"""The units of systemd: what they restrict, and what each must not be denied."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
#: The highest exposure that ``systemd-analyze security`` may report (0 is safe, 10 unsafe).
MOST_EXPOSED = {"faultline": 2.0, "faultline-agent": 4.0}
BOTH = {
    "UMask": "0077", "StateDirectoryMode": "0700", "NoNewPrivileges": "true", "ProtectSystem": "strict", "PrivateTmp": "true",
    "ProtectKernelTunables": "true", "ProtectKernelModules": "true", "ProtectControlGroups": "true", "ProtectHostname": "true",
    "RestrictNamespaces": "true", "RestrictRealtime": "true", "RestrictSUIDSGID": "true", "LockPersonality": "true",
    "SystemCallArchitectures": "native", "SystemCallErrorNumber": "EPERM", "KeyringMode": "private",
}  # fmt: skip
SERVICE = {
    "User": "faultline", "PrivateDevices": "true", "ProtectHome": "true", "ProtectKernelLogs": "true", "ProtectClock": "true",
    "ProtectProc": "invisible", "RemoveIPC": "true", "CacheDirectoryMode": "0700", "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
    "CapabilityBoundingSet": "CAP_NET_BIND_SERVICE", "AmbientCapabilities": "CAP_NET_BIND_SERVICE",
    "SystemCallFilter": "@system-service ~@privileged",
}  # fmt: skip
AGENT = {
    "ProtectHome": "read-only", "SystemCallFilter": "@system-service",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX AF_NETLINK",
    "RuntimeDirectory": "faultline", "RuntimeDirectoryPreserve": "yes",
    "CapabilityBoundingSet": "CAP_CHOWN CAP_DAC_READ_SEARCH CAP_DAC_OVERRIDE CAP_SYSLOG CAP_NET_ADMIN CAP_SYS_NICE CAP_SETUID CAP_SETGID CAP_KILL",
}  # fmt: skip
#: Restrictions that would break it: machine code of the parsers, the kernel's log, GPUs, links, and the child that
#: becomes the job's user.
NEVER = {
    "faultline": {"MemoryDenyWriteExecute", "ProcSubset", "PrivateUsers", "PrivateNetwork", "IPAddressDeny"},
    "faultline-agent": {"MemoryDenyWriteExecute", "ProtectKernelLogs", "PrivateDevices", "DevicePolicy", "DeviceAllow", "ProtectClock",
                        "User", "PrivateUsers", "PrivateNetwork", "ProtectProc"},
}  # fmt: skip


def settings(name: str) -> dict[str, str]:
    """The settings of [Service]; a key given twice has both values."""
    found: dict[str, str] = {}
    section = (UNITS / f"{name}.service").read_text().split("[Service]")[1].split("[Install]")[0]
    for key, value in re.findall(r"^(\w+)=(.*)$", section, re.MULTILINE):
        found[key] = f"{found[key]} {value}" if key in found else value
    return found


@pytest.mark.parametrize(
    ("name", "wanted"), [("faultline", {**BOTH, **SERVICE}), ("faultline-agent", {**BOTH, **AGENT})]
)
def test_a_unit_is_shut_as_far_as_its_work_permits(name: str, wanted: dict[str, str]) -> None:
    reported = settings(name)
    assert {key: reported.get(key) for key in wanted} == wanted
    assert not NEVER[name] & set(reported)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("name", sorted(MOST_EXPOSED))
def test_systemd_finds_little_open_and_no_word_that_it_does_not_know(name: str) -> None:
    unit = str(UNITS / f"{name}.service")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", unit], capture_output=True, text=True
    )
    found = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    if found is None:  # older than 250
        pytest.skip(done.stderr.strip()[:200])
    print(f"{name}: exposure {found[1]}")
    assert float(found[1]) <= MOST_EXPOSED[name]
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    wrong = [line for line in verified.stderr.splitlines() if "Unknown" in line or "Failed to parse" in line]
    assert not wrong
