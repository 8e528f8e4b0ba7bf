"""Recognises the type of a file, by its content first and its path second.

``recognise`` never opens a file: it gets the first bytes (already decompressed) and the path. Each result includes the
reason, so that ``faultline ingest`` can report it.

Files below ``jobs/`` were put there by users, with names and content of their choosing: they are that job's output,
script or environment, or nothing. No name and no content makes them the cluster's.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

from parsers import documents, extensions
from parsers.documents import counters
from parsers.documents.hook import MAGIC as HOOK_MAGIC
from parsers.recognition.documents import DOCUMENTS
from parsers.recognition.lines import is_json_lines, of_lines
from parsers.recognition.not_text import why_binary
from parsers.recognition.paths import inner_path, place_of
from parsers.recognition.result import Recognition


def recognise(path: Path | str, head: bytes, root: Path | None = None) -> Recognition:
    """Recognises a file by ``head``, its first bytes (at most 64 KiB, already decompressed), and by its path.

    ``root`` is the path that the user named: folders above it are ignored. Never raises on content.
    """
    inner, above = inner_path(path, root)
    place = place_of(inner, above, whole_tree=root is not None)
    name = inner.name
    if name.lower() in _NEVER:
        return replace(place, kind="skip", artifact=None, reason=_NEVER[name.lower()])
    if not head.removeprefix(b"\xef\xbb\xbf").strip():
        return replace(place, kind="lines", reason="empty")
    if place.of_job:
        return _of_job(place, inner, head)
    if head.startswith(HOOK_MAGIC):
        return replace(place, kind="hook_spool", reason="begins with faultline-hook/1")
    binary = why_binary(head)
    if binary:
        return replace(place, kind="binary", source=None, artifact=None, reason=binary)
    if any(shape.search(inner.as_posix()) for shape in (counters.PORT_FILE, counters.NET_FILE, counters.DEVICE_FILE)):
        return replace(place, kind="sysfs_file", reason="a file of /sys/class: its path says which counter it is")
    text = head.decode("utf-8", "replace").removeprefix("﻿")
    if of_package := _of_package(inner, text):
        return replace(place, kind=of_package, source=None, reason="a document of an installed package")
    for kind, why, fits in DOCUMENTS:
        if fits(text):
            return replace(place, kind=kind, source=None, reason=why)
    if name.lower().endswith(_NO_LOGS) and not is_json_lines(text):
        return replace(place, kind="skip", source=None, reason="neither logs nor a document known here")
    return of_lines(place, inner, text)


def _of_package(inner: PurePosixPath, text: str) -> str | None:
    """The kind that a family of an installed package claims; one that fails on a file is logged, and has not recognised
    it."""
    for called, document in documents.installed().items():
        assert document.recognises is not None
        try:
            kind = document.recognises(inner, text)
        except Exception as error:
            extensions.warn_once(f"{called}: recognises({inner}) raised {extensions.described(error)}")
            continue
        if kind in document.kinds:
            return kind
        if kind is not None:
            extensions.warn_once(
                f"{called}: recognises({inner}) gave {kind!r}, which is none of its kinds: {', '.join(document.kinds)}"
            )
    return None


def _of_job(place: Recognition, inner: PurePosixPath, head: bytes) -> Recognition:
    """A file that a job's user wrote: its location gives the type, and its content at most shows that it is not
    text."""
    if place.artifact == "env":
        return replace(place, kind="job_env", reason="an env file in a job's folder")
    whose = f"job {place.job_id}" if place.job_id is not None else "a job whose number is not known"
    if binary := why_binary(head):
        return replace(place, kind="skip", source=None, artifact=None, reason=f"of {whose}: {binary}")
    if place.artifact:
        kind = "script" if place.artifact == "script" else "lines"
        return replace(place, kind=kind, reason=f"{place.artifact} of {whose}")
    if inner.name.lower().endswith(_NO_LOGS):
        return replace(place, kind="skip", source=None, reason=f"of {whose}: no output, script.sh or env")
    return replace(place, kind="lines", reason=f"below jobs/: words of {whose}, whatever it is named and holds")


_NEVER = {
    "truth.json": "an answer key, never read", "readme": "documentation", "readme.md": "documentation",
    "readme.txt": "documentation", "license": "documentation", "manifest.csv": "documentation",
    "labels.json": "an answer key, never read",
}  # fmt: skip
_NO_LOGS = (".md", ".toml", ".yaml", ".yml", ".py", ".xml", ".html", ".json")
