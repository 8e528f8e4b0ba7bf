"""Further output of ``nvidia-smi``: its table, ``-L``, ``dmon``, ``pmon`` and ``topo -m``, as metrics.

The table's values have the names of the same columns of ``--query-gpu``. ``ERR!`` in a cell means that the driver gets
no answer from the GPU: ``gpu.lost``.
"""

from __future__ import annotations

import re
from datetime import datetime

from parsers.documents import fields
from parsers.documents.document import Gathered, Line, StatedEvent, of_lines
from parsers.record import Origin

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


# ---------------------------------------------------------------------------------------------------------- dmon, pmon


def _stamp(row: dict[str, str], origin: Origin) -> datetime | None:
    """The columns ``Date`` and ``Time`` that ``-o DT`` adds."""
    date, time = row.get("date", ""), row.get("time", "")
    if not (re.fullmatch(r"\d{8}", date) and time):
        return None
    return fields.local_time(f"{date[:4]}-{date[4:6]}-{date[6:]}T{time}", origin.timezone)


def _read_monitor(gathered: Gathered, lines: list[Line]) -> None:
    """``dmon`` and ``pmon``: two header lines (names, units), then a row per GPU or process and second."""
    names: list[str] = []
    kind = gathered.kind.removeprefix("nvidia_smi_")
    for line in lines:
        words = line.text.lstrip("#").split()
        if line.text.startswith("#"):
            names = [word.lower() for word in words] if "gpu" in words else names
        row = (
            dict(zip(names, words, strict=False)) if not line.text.startswith("#") and len(words) >= len(names) else {}
        )
        time = _stamp(row, gathered.origin) or gathered.time
        gathered.keep(line, time)
        gpu = row.pop("gpu", "")
        if not gpu.isdigit():
            continue
        labels = {"gpu": gpu, "pid": row.pop("pid", None), "command": row.pop("command", None)}
        if labels["pid"] == "-":
            continue  # a GPU without processes
        for name, value in row.items():
            if name not in ("date", "time") and _NUMBER.fullmatch(value):
                gathered.sample(f"nvidia_smi_{kind}_{name}", float(value), gpu, time=time, **labels)


# ------------------------------------------------------------------------------------------------------------------ -L

_LISTED = re.compile(r"GPU (?P<gpu>\d+): (?P<name>.*?) \(UUID: (?P<uuid>GPU-[0-9a-f-]+)\)")
_SLICE = re.compile(r"\s+(?P<name>MIG \S+)\s+Device\s+(?P<slice>\d+): \(UUID: (?P<uuid>MIG-[0-9a-fA-F/-]+)\)")


def _read_list(gathered: Gathered, lines: list[Line]) -> None:
    gpu: str | None = None
    for line in lines:
        gathered.keep(line, gathered.time)
        found = _LISTED.match(line.text)
        if found:
            gpu = found["gpu"]
            gathered.sample("nvidia_smi_gpu_info", 1.0, gpu, gpu=gpu, name=found["name"], UUID=found["uuid"])
        slice_ = _SLICE.match(line.text)
        if slice_:
            gathered.sample(
                "nvidia_smi_mig_info", 1.0, gpu, gpu=gpu, name=slice_["name"], mig=slice_["slice"], UUID=slice_["uuid"]
            )


# ------------------------------------------------------------------------------------------------------------- topo -m

_CELL = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|N/A")


def _read_topology(gathered: Gathered, lines: list[Line]) -> None:
    """``nvidia_smi_topology_nvlinks``: NVLinks between two devices, 0 if they communicate over PCIe; the label gives
    the type."""
    columns: list[str] = []
    for line in lines:
        gathered.keep(line, gathered.time)
        words = re.sub(r"\x1b\[[0-9;]*m", "", line.text).split()
        if not columns and words[:1] in (["GPU0"], ["X"]):
            columns = [word for word in words if re.fullmatch(r"(?:GPU|NIC|mlx5_)\d+", word)]
        elif words and re.fullmatch(r"GPU\d+", words[0]):
            for other, cell in zip(columns, words[1:], strict=False):
                if _CELL.fullmatch(cell) and cell not in ("X", "N/A"):
                    links = float(cell[2:]) if cell.startswith("NV") else 0.0
                    gathered.sample(
                        "nvidia_smi_topology_nvlinks", links, words[0][3:], gpu=words[0][3:], to=other, link=cell
                    )


# ----------------------------------------------------------------------------------------------------------- the table

_FIRST = re.compile(
    r"\|\s+(?P<gpu>\d+)\s+(?P<name>\S.*?)\s+(?:On|Off|N/A)\s*\|\s*(?P<pci>[0-9A-Fa-f]{8}:\S+)\s+\S+\s*\|\s*(?P<ecc>\S+)"
)
_SECOND = re.compile(
    r"\|\s*(?P<fan>\d+%|N/A|ERR!)\s+(?P<celsius>\d+C|N/A|ERR!)\s+(?P<state>P\d+|ERR!|N/A)\s+(?P<watts>\S+)\s*/\s*(?P<limit>\S+)\s*\|"
    r"\s*(?P<used>\d+)MiB\s*/\s*(?P<total>\d+)MiB\s*\|\s*(?P<busy>\d+%|N/A|ERR!)"
)  # fmt: skip
_TABLE = (
    ("celsius", "nvidia_smi_temperature_gpu", 1.0), ("watts", "nvidia_smi_power_draw_watts", 1.0),
    ("used", "nvidia_smi_memory_used_bytes", 1048576.0), ("total", "nvidia_smi_memory_total_bytes", 1048576.0),
    ("busy", "nvidia_smi_utilization_gpu_ratio", 0.01),
)  # fmt: skip
_DATE = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \d{4}\s*$")


def _read_table(gathered: Gathered, lines: list[Line]) -> None:
    time, gpu, pci = gathered.time, None, None
    for line in lines:
        if _DATE.match(line.text):
            moment = datetime.strptime(" ".join(line.text.split()), "%a %b %d %H:%M:%S %Y")
            time = fields.local_time(moment.isoformat(), gathered.origin.timezone) or time
        first, second = _FIRST.match(line.text), _SECOND.match(line.text)
        lost_gpu = None
        values: list[tuple[str, str, float]] = []
        if first:
            gpu, pci = first["gpu"], first["pci"]
            values = [("nvidia_smi_ecc_errors_uncorrected_volatile_total", first["ecc"], 1.0)]
        elif second:
            values = [(metric, second[name], factor) for name, metric, factor in _TABLE]
        if gpu and (first or second) and "ERR!" in line.text:
            lost_gpu = StatedEvent("gpu.lost", {"gpu": int(gpu), "pci": pci, "reason": "ERR!"}, "error")
        gathered.keep(line, time, stated=lost_gpu)
        for metric, text, factor in values:
            number = _NUMBER.match(text)
            if number:
                gathered.sample(metric, float(number[0]) * factor, gpu, time=time, gpu=gpu, pci_bus_id=pci)


DOCUMENT = of_lines({
    "nvidia_smi_dmon": _read_monitor, "nvidia_smi_pmon": _read_monitor, "nvidia_smi_list": _read_list, "nvidia_smi_topo": _read_topology,
    "nvidia_smi_table": _read_table,
})  # fmt: skip
