"""Content that is not text."""

from __future__ import annotations

import re

_MAGICS = {
    b"\x7fELF": "an ELF program or core dump", b"\x1f\x8b": "still gzip inside", b"PAR1": "Parquet",
    b"\x28\xb5\x2f\xfd": "still zstd inside", b"\xfd7zXZ\x00": "still xz inside", b"BZh": "bzip2",
    b"LPKSHHRH": "a systemd journal: use journalctl -o export or journald upload", b"SQLite format 3\0": "SQLite",
    b"\x89PNG": "an image", b"%PDF": "PDF",
}  # fmt: skip


def archive_of(head: bytes) -> str | None:
    """The kind of multi-file archive that begins like this; None if it is none."""
    if head[257:262] == b"ustar":  # POSIX.1-1988 and GNU alike
        return "a tar archive"
    return "a zip archive" if head.startswith(b"PK\x03\x04") else None


def why_binary(head: bytes) -> str | None:
    """Why the content is not text; a few NULs (a log truncated by a power loss) still are text."""
    if archive := archive_of(head):
        return f"{archive} of several files: unpack it into a folder and ingest that"
    for magic, what in _MAGICS.items():
        if head.startswith(magic):
            return what
    nulls = head.count(0)
    if nulls > 8 and nulls > len(head) // 20 and not _holed(head):
        return f"{nulls} NUL bytes in the first {len(head)}"
    control = sum(head.count(byte) for byte in (1, 2, 3, 4, 5, 6, 14, 15, 16, 17, 18, 19, 20))
    return f"{control} control bytes in the first {len(head)}" if control > len(head) // 32 else None


def _holed(head: bytes) -> bool:
    """One run of NULs between lines of text: what a file system leaves in a log after a power loss."""
    rest = re.sub(rb"\x00{8,}", b"", head)
    return b"\0" not in rest and b"\n" in rest
