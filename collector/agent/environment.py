"""What a step ran with: the part of its first task's environment that may leave the node.

Names are allow-listed, values are bounded, and secrets are removed here (``collector.agent.redaction``). The environment
is the user's word: it is kept as that, beside the run, and nothing about the cluster follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from collector.agent.redaction import redact

#: Names that are kept; one that ends in * is a beginning.
ALLOWED = (
    "SLURM_*", "NCCL_*", "CUDA_*", "NVIDIA_*", "UCX_*", "OMPI_*", "PMIX_*", "TORCH_*", "MASTER_*", "PYXIS_*", "ENROOT_*",
    "APPTAINER_*", "SINGULARITY_*", "LOADEDMODULES", "_LMFILES_", "CONDA_DEFAULT_ENV", "CONDA_PREFIX", "VIRTUAL_ENV", "GIT_COMMIT",
)  # fmt: skip
#: A site's own names, one a line; the hook reads the same file.
SITE = Path("/etc/faultline/slurm/environment.conf")
#: Bounds of one environment: variables, characters of a value, and of all names and values.
MOST, MOST_VALUE, MOST_ALL = 200, 4096, 48 << 10
#: Numbers by which Slurm calls steps that have none (slurm/slurm.h: SLURM_BATCH_SCRIPT, SLURM_INTERACTIVE_STEP).
_STEPS = {"4294967291": "batch", "4294967290": "interactive", "": "batch"}
_NEVER = frozenset({"SLURM_JWT"})


def allowed(site: Path = SITE) -> tuple[str, ...]:
    """The names that are kept at this site."""
    try:
        text = site.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ALLOWED
    lines = (line.strip() for line in text.splitlines())
    return (*ALLOWED, *(line for line in lines if line and not line.startswith("#")))


def kept(env: Mapping[str, str], names: tuple[str, ...] = ALLOWED) -> tuple[dict[str, str], int]:
    """The variables that may leave the node, and how many were left out or cut for their size.

    >>> kept({"NCCL_DEBUG": "INFO", "HOME": "/home/a", "UCX_TOKEN": "hunter2hunter2"})
    ({'NCCL_DEBUG': 'INFO', 'UCX_TOKEN': '[redacted]'}, 0)
    """
    beginnings = tuple(name[:-1] for name in names if name.endswith("*"))
    whole = frozenset(name for name in names if not name.endswith("*"))
    found: dict[str, str] = {}
    room, cut = MOST_ALL, 0
    for name, value in sorted(env.items()):
        if name in _NEVER or not (name in whole or name.startswith(beginnings)):
            continue
        # Before it is cut: the pattern of a secret would not recognise its beginning.
        shown = _without_secrets(name, value)
        if len(shown) > MOST_VALUE:
            shown, cut = shown[:MOST_VALUE], cut + 1
        room -= len(name) + len(shown)
        if room < 0 or len(found) >= MOST:
            cut += 1
            continue
        found[name] = shown
    return found, cut


def step_of(env: Mapping[str, str]) -> str | None:
    """The step's name as in Slurm's notation: "0", "batch"; None if it has no plausible one."""
    number = env.get("SLURM_STEP_ID") or env.get("SLURM_STEPID") or ""
    named = _STEPS.get(number, number)
    return named if named in _STEPS.values() or (number.isascii() and number.isdigit() and len(number) < 10) else None


def is_first_task(env: Mapping[str, str]) -> bool:
    """All tasks of a step have the same environment but for their numbers; the first one tells it."""
    return env.get("SLURM_PROCID", "0") == "0"


def _without_secrets(name: str, value: str) -> str:
    text, _ = redact(f"{name}={value}".encode("utf-8", "replace"))
    head = f"{name}=".encode()
    return text[len(head) :].decode("utf-8", "replace") if text.startswith(head) else "[redacted]"
