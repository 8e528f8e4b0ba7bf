"""What is measured of a device and drawn beside its facts: names, units, and the metrics that have it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gauge:
    """``metrics`` are names that sources use for it; those of several devices are drawn as a range. ``counter``: it only
    grows, and what it grew by is drawn if it grew."""

    name: str
    unit: str
    metrics: tuple[str, ...]
    counter: bool = False
    #: What collects it, in a sentence that there is none.
    of: str = "GPU samples"


#: The gauges of a GPU that kinds of facts about one name.
OF_GPUS = ("temperature", "power", "utilisation", "ecc", "remapped", "nvlink", "replays")

#: By the names that kinds of facts use (``correlator.model.kinds.Kind.gauges``). The metrics are those of NVIDIA's DCGM
#: exporter, which the agent uses as well (collector/agent/sources/nvml.py), and of the counters of InfiniBand ports.
GAUGES = {
    "temperature": Gauge("temperature", "°C", ("DCGM_FI_DEV_GPU_TEMP",)),
    "clock": Gauge("SM clock", "MHz", ("DCGM_FI_DEV_SM_CLOCK",)),
    "power": Gauge("power", "W", ("DCGM_FI_DEV_POWER_USAGE",)),
    "utilisation": Gauge("utilisation", "%", ("DCGM_FI_DEV_GPU_UTIL",)),
    "ecc": Gauge("uncorrected ECC", "", ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",), counter=True),
    "remapped": Gauge("remapped rows", "", ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",), counter=True),
    "nvlink": Gauge(
        "NVLink errors", "",
        ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT", "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT", "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT"), counter=True,
    ),
    "replays": Gauge("PCIe replays", "", ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER",), counter=True),
    "symbol_errors": Gauge("symbol errors", "", ("infiniband_symbol_error_total", "node_infiniband_symbol_error_total"), counter=True, of="port counters"),
    "receive_errors": Gauge(
        "receive errors", "", ("infiniband_port_rcv_errors_total", "node_infiniband_port_receive_errors_total"), counter=True,
        of="port counters",
    ),
}  # fmt: skip
