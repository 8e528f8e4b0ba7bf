"""Documents: files that are not plain log lines (accounting, configuration, counters, environments).

``read`` takes a kind from ``parsers.recognise`` and the whole content, and returns tables. A new family is one module
with a ``DOCUMENT`` and its name in ``_FAMILIES``. A third party's is an entry point of the group
``faultline.documents`` that names a ``Document``; it gets to recognise a file before the built-in ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from parsers import extensions
from parsers.documents import (
    counters,
    dcgm,
    ethtool,
    events,
    hook,
    infiniband_links,
    infiniband_ports,
    job_env,
    job_file,
    jobcomp,
    jobcomp_json,
    journal_export,
    link_counters,
    links_csv,
    lldp_tables,
    lldpctl,
    log_search,
    mlxlink,
    node_polls,
    nvidia_smi,
    nvidia_smi_tables,
    perfquery,
    prometheus,
    sacct,
    scontrol,
    slurm_conf,
    slurm_json,
    snapshots,
    task_environment,
    topology_conf,
    topology_yaml,
)
from parsers.documents.document import Document, Gathered, split_lines
from parsers.record import Origin, Parsed

_FAMILIES = (
    counters, dcgm, ethtool, events, hook, infiniband_links, infiniband_ports, job_env, job_file, jobcomp, jobcomp_json, journal_export, link_counters, links_csv,
    lldp_tables, lldpctl, log_search, mlxlink, node_polls, nvidia_smi, nvidia_smi_tables, perfquery, prometheus, sacct, scontrol, slurm_conf,
    slurm_json, snapshots, task_environment, topology_conf, topology_yaml,
)  # fmt: skip


GROUP = "faultline.documents"

#: Kind -> the built-in family that reads it. Names of built-in kinds never change.
REGISTRY: dict[str, Document] = {kind: family.DOCUMENT for family in _FAMILIES for kind in family.DOCUMENT.kinds}


@cache
def installed() -> Mapping[str, Document]:
    """Families of installed packages, by their names in messages. They are loaded on first use and not on import, because a
    package's own module imports this one."""
    taken = set(REGISTRY)

    def admit(offered: object, extension: extensions.Extension) -> tuple[str, Document]:
        document = extensions.expect(offered, Document)
        if document.recognises is None:
            raise ValueError("recognises no file: a document of a package needs recognises")
        if isinstance(document.kinds, str) or not document.kinds:
            raise ValueError("kinds must be a tuple of names")
        extensions.claim(extension, document.kinds, taken, "kind")
        taken.update(document.kinds)
        return extension.called, document

    return dict(extensions.load(GROUP, admit))


@cache
def families() -> Mapping[str, Document]:
    """Kind -> the family that reads it, installed packages included."""
    return REGISTRY | {kind: document for document in installed().values() for kind in document.kinds}


def read(kind: str, data: bytes, origin: Origin) -> Parsed:
    """Reads a whole document. Never raises on bad content: what cannot be parsed is listed in ``warnings`` and kept
    line by line in ``logs`` with the tag "unparsed". An unknown ``kind`` is a bug of the caller and raises KeyError.
    """
    document = families()[kind]
    try:
        return document.read(kind, data, origin)
    except Exception as error:  # any content may arrive; a failing reader must not lose the file
        kept = Gathered(kind, origin)
        kept.warn(f"cannot be read as {kind} ({type(error).__name__}: {error}); its lines are kept as they are")
        for line in split_lines(data):
            kept.keep_unread(line)
        return kept.parsed()
