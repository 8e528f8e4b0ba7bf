"""Documents: files that are not plain log lines (accounting, configuration, counters, environments).

``read`` takes a kind from ``parsers.recognise`` and the whole content, and returns tables. A new family is one module
with a ``DOCUMENT`` and its name in ``_FAMILIES``. A third party's is an entry point of the group
``faultline.documents`` that names a ``Document``; it gets to recognise a file before the built-in ones.
"""

from __future__ import annotations

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
    topology_conf,
    topology_yaml,
)
from parsers.documents.document import Document, Gathered, split_lines
from parsers.record import Origin, Parsed

_FAMILIES = (
    counters, dcgm, ethtool, events, hook, infiniband_links, infiniband_ports, job_env, job_file, jobcomp, jobcomp_json, journal_export, link_counters, links_csv,
    lldp_tables, lldpctl, log_search, mlxlink, node_polls, nvidia_smi, nvidia_smi_tables, perfquery, prometheus, sacct, scontrol, slurm_conf,
    slurm_json, snapshots, topology_conf, topology_yaml,
)  # fmt: skip


#: Kind -> the family that reads it. Names of built-in kinds never change.
REGISTRY: dict[str, Document] = {kind: family.DOCUMENT for family in _FAMILIES for kind in family.DOCUMENT.kinds}


def _admit(offered: object, extension: extensions.Extension) -> tuple[str, Document]:
    """Validates a family of an installed package, and returns it with its name for messages. Raises ``TypeError`` and
    ``ValueError``."""
    document = extensions.expect(offered, Document)
    if document.recognises is None:
        raise ValueError("recognises no file: a document of a package needs recognises")
    if isinstance(document.kinds, str) or not document.kinds:
        raise ValueError("kinds must be a tuple of names")
    for kind in document.kinds:
        if kind in REGISTRY:
            raise ValueError(f"the kind {kind!r} is taken")
    REGISTRY.update(dict.fromkeys(document.kinds, document))
    return extension.called, document


#: Families of installed packages, by their names in messages.
INSTALLED: dict[str, Document] = dict(extensions.load("faultline.documents", _admit))


def read(kind: str, data: bytes, origin: Origin) -> Parsed:
    """Reads a whole document. Never raises on bad content: what cannot be parsed is listed in ``warnings`` and kept
    line by line in ``logs`` with the tag "unparsed". An unknown ``kind`` is a bug of the caller and raises KeyError.
    """
    document = REGISTRY[kind]
    try:
        return document.read(kind, data, origin)
    except Exception as error:  # any content may arrive; a failing reader must not lose the file
        kept = Gathered(kind, origin)
        kept.warn(f"cannot be read as {kind} ({type(error).__name__}: {error}); its lines are kept as they are")
        for line in split_lines(data):
            kept.keep_unread(line)
        return kept.parsed()
