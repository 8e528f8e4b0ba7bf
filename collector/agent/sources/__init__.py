"""The agent's built-in sources. A new one is a file with ``SOURCE`` and an entry here; a site's own is a module named
in the configuration (``plugins = ["site_pump"]``) that defines ``SOURCE`` the same way.

Modules are imported when the configuration enables them: a disabled source uses no memory.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from collector.agent.failure import AgentError
from collector.agent.source import SourceKind

#: Name in the configuration -> module.
BUILT_IN: dict[str, str] = {
    "files": "collector.agent.sources.files",
    "journald": "collector.agent.sources.journald",
    "kmsg": "collector.agent.sources.kmsg",
    "links": "collector.agent.sources.links",
    "ethtool": "collector.agent.sources.ethtool",
    "infiniband": "collector.agent.sources.infiniband",
    "lldp": "collector.agent.sources.lldp",
    "nvml": "collector.agent.sources.nvml",
    "scrape": "collector.agent.sources.scrape",
    "units": "collector.agent.sources.units",
    "platform": "collector.agent.sources.platform",
    "software": "collector.agent.sources.software",
    "boot": "collector.agent.sources.boot",
    "hooks": "collector.agent.sources.hooks",
    "job_output": "collector.agent.sources.job_output",
    "accounting": "collector.agent.sources.accounting",
    "nodes": "collector.agent.sources.nodes",
    "slurm_conf": "collector.agent.sources.slurm_conf",
    "sdiag": "collector.agent.sources.sdiag",
    "slurmrestd": "collector.agent.sources.slurmrestd",
}


def kinds(plugins: Iterable[str] = (), only: Iterable[str] | None = None) -> dict[str, SourceKind]:
    """Source kinds by name: built-in ones (those in ``only``, default all) and the plugins'. Raises ``AgentError``."""
    names = BUILT_IN if only is None else [name for name in BUILT_IN if name in set(only)]
    found = {name: _load(BUILT_IN[name]) for name in names}
    for module in plugins:
        kind = _load(module)
        if kind.name in BUILT_IN or kind.name in found:
            raise AgentError(f"plugin {module}: its source is named {kind.name!r}, and that name is taken")
        found[kind.name] = kind
    return found


def _load(module: str) -> SourceKind:
    try:
        kind = importlib.import_module(module).SOURCE
    except ImportError as error:
        raise AgentError(f"source module {module}: cannot be imported: {error}") from error
    except AttributeError as error:
        raise AgentError(f"source module {module}: defines no SOURCE") from error
    if not isinstance(kind, SourceKind):
        raise AgentError(f"source module {module}: SOURCE is a {type(kind).__name__}, not a SourceKind")
    return kind
