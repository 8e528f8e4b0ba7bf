"""What users chose: names of files, jobs and devices in our own messages, quoted so that no pattern matches them, and
links, which must not lead to other people's files.

Readers of logs search for words. A file named ``NVRM: Xid (PCI:0000:3b:00): 79`` must not become a GPU error because
the agent reports why it did not read that file.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

#: Linux follows this many links in a row.
MOST_LINKS = 40
#: Longer names are truncated; the number of omitted characters is appended.
MOST = 80

#: The characters of parsers/visible.py, which is not available here: a test compares them.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]"
)


def visible(text: str) -> str:
    """``text`` as one line for a terminal: control, bidirectional and invisible characters become JSON escapes.

    >>> visible("a\\x1b[31mb")
    'a\\\\u001b[31mb'
    """
    return _HIDDEN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def quoted(text: str | bytes | os.PathLike[str], most: int = MOST) -> str:
    """``text`` as one bounded word between ``<`` and ``>`` that no pattern matches: a dot precedes every letter and
    digit, other bytes are ``%xx``. People can read it, word searches cannot.

    >>> quoted("a b/c1")
    '<.a%20.b%2f.c.1>'
    """
    data = text if isinstance(text, bytes) else os.fsencode(os.fspath(text)) if _encodes(text) else repr(text).encode()
    shown = "".join(
        f".{chr(byte)}" if chr(byte).isascii() and chr(byte).isalnum() else f"%{byte:02x}" for byte in data[:most]
    )
    return f"<{shown}>" if len(data) <= most else f"<{shown}...{len(data) - most} bytes more>"


def _encodes(text: str | os.PathLike[str]) -> bool:
    try:
        os.fsencode(os.fspath(text))
    except UnicodeEncodeError:
        return False
    return True


def is_led_astray(path: str, status: os.stat_result) -> bool:
    """Whether a user redirected us to a file (``status``) of somebody else: a component of ``path`` is a link of
    theirs. Links of root, of the agent's own user, and to one's own file are followed."""
    ours = (0, os.geteuid(), status.st_uid)
    step, left, links = Path("/"), list(reversed(Path(path).absolute().parts[1:])), 0
    while left:
        part = left.pop()
        if part == "..":
            step = step.parent
            continue
        below = step / part
        seen = below.lstat()
        if not stat.S_ISLNK(seen.st_mode):
            step = below
            continue
        links += 1
        if seen.st_uid not in ours or links > MOST_LINKS:
            return True
        target = below.readlink()
        step = Path("/") if target.is_absolute() else step
        left += reversed(target.parts[target.is_absolute() :])
    return False


def open_safely(path: Path) -> int:
    """Opens a file, but never somebody else's file through a user's link: globs match what users created. Raises
    ``OSError``."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if is_led_astray(str(path), os.fstat(handle)):
            raise PermissionError(errno.EACCES, "a user's link leads to a file of somebody else", str(path))
    except OSError:
        os.close(handle)
        raise
    return handle
