"""What the names of a node's software, as its agent reports them, are called (collector/agent/sources/software.py)."""

from __future__ import annotations

_CALLED = {"nvidia_driver": "NVIDIA driver", "nic_firmware": "NIC firmware", "bios": "BIOS", "os": "operating system"}


def called(name: str) -> str:
    """ "nic_driver_mlx5_core" -> "NIC driver mlx5_core"."""
    if name.startswith("nic_driver_"):
        return f"NIC driver {name.removeprefix('nic_driver_')}"
    return _CALLED.get(name, name)
