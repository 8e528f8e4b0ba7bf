"""The gate's answer in a file: written by the agent, read here for ``faultline-python hook prolog --gate`` and by
``deploy/slurm/faultline-gate.sh``.

The file is short text that a shell can read: a first line with the format, lines ``NAME VALUE``, an empty line, and the
reasons as they are printed. The last line is a MAC over all before it, with a key that only the agent and root can
read. The shell cannot check the MAC in a few milliseconds: there the owner of file and folder counts.

Times are seconds since the boot that ``boot`` names: no clock that is set, and no reboot, makes an old answer fresh.
Nothing here raises: an answer that cannot be read or believed is doubtful, and never refuses a job.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field

MAGIC = "faultline-gate/1"
FOLDER = "/var/lib/faultline-agent/gate"
ANSWER, KEY = "answer", "key"
#: Bytes of a file at most; the shell reads as many.
MOST_BYTES = 8192
MOST_REASONS, MOST_TEXT = 12, 300
FIT, DOUBTFUL, UNFIT = "fit", "doubtful", "unfit"
VERDICTS = (FIT, DOUBTFUL, UNFIT)
#: Bytes of the key.
KEY_BYTES = 32
_NUMBERS = ("made", "good_until", "refuse_until")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@dataclass(frozen=True)
class Answer:
    """``reasons``: lines for people. ``made``, ``good_until`` and ``refuse_until``: seconds since boot; until the last one
    an unfit answer refuses jobs (0: never). ``age``: seconds that the service's part was old when it was made, -1 if
    there is none."""

    node: str
    verdict: str
    reasons: tuple[str, ...] = ()
    boot: str = ""
    made: int = 0
    good_until: int = 0
    refuse_until: int = 0
    age: int = -1


@dataclass(frozen=True)
class Word:
    """What a hook says: ``lines`` to print, of which the first begins with the verdict, and whether to refuse the job."""

    verdict: str
    lines: tuple[str, ...]
    refuses: bool = False
    why: str = field(default="", compare=False)


def body_of(answer: Answer) -> str:
    """The file without its MAC."""
    head = [
        MAGIC, f"node {plain(answer.node)}", f"fitness {answer.verdict}", f"boot {plain(answer.boot)}", f"made {answer.made}",
        f"good_until {answer.good_until}", f"refuse_until {answer.refuse_until}", f"age {answer.age}", "",
    ]  # fmt: skip
    shown = [plain(reason) for reason in answer.reasons[:MOST_REASONS]]
    more = len(answer.reasons) - MOST_REASONS
    return "\n".join([*head, *shown, *([f"and {more} more"] if more > 0 else []), ""])


def signed(answer: Answer, key: bytes) -> bytes:
    """The bytes of the file."""
    body = body_of(answer).encode()
    return body + b"mac " + _mac(key, body) + b"\n"


def plain(text: str) -> str:
    """Printable ASCII in one line, and not too long: a line of a log that a terminal and a shell can take."""
    flat = "".join(c if c.isascii() and c.isprintable() else "?" for c in " ".join(text.split()))
    return flat if len(flat) <= MOST_TEXT else flat[: MOST_TEXT - 3] + "..."


def _mac(key: bytes, body: bytes) -> bytes:
    import hmac  # loads OpenSSL: only where an answer is signed or checked

    return hmac.new(key, body, "sha256").hexdigest().encode()


def word(folder: str, boot: str, uptime: float) -> Word:
    """What the answer in a folder says now. ``boot``, ``uptime``: of this boot."""
    try:
        answer = _believed(folder)
    except OSError as error:
        return _doubt(f"its answer cannot be read: {folder}/{ANSWER}: {error.strerror or error}")
    except ValueError as error:
        return _doubt(f"its answer is not believed: {folder}/{ANSWER}: {error}")
    if answer.boot != boot:
        return _doubt("its answer is from before the last boot; is faultline-agent running?")
    if not answer.made <= uptime + 1 or uptime >= answer.good_until:
        return _doubt(f"its answer is {int(uptime - answer.made)} s old; is faultline-agent running?")
    old = (
        f"answer of the service {answer.age + int(uptime - answer.made)} s ago"
        if answer.age >= 0
        else "without the service"
    )
    refuses = answer.verdict == UNFIT and uptime < answer.refuse_until
    lines = (f"{answer.verdict} {answer.node} ({old})", *(f"  - {reason}" for reason in answer.reasons))
    return Word(answer.verdict, lines, refuses)


def _doubt(why: str) -> Word:
    return Word(DOUBTFUL, (f"{DOUBTFUL}: {why}",), why=why)


def _believed(folder: str) -> Answer:
    """The signed answer. Raises ``OSError``, and ``ValueError`` with the reason not to believe it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _check_owner(os.fstat(handle), "the folder")
        key = _content(KEY, handle)
        data = _content(ANSWER, handle)
    finally:
        os.close(handle)
    body, mark, mac = data.rpartition(b"mac ")
    import hmac

    if len(key) < KEY_BYTES or not mark or not hmac.compare_digest(mac, _mac(key, body) + b"\n"):
        raise ValueError("it is not signed by this node's agent")
    return read(body.decode("ascii"))


def _content(name: str, folder: int) -> bytes:
    handle = os.open(name, _READ, dir_fd=folder)
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError(f"{name} is no regular file")
        _check_owner(about, name)
        data = os.read(handle, MOST_BYTES + 1)
    finally:
        os.close(handle)
    if len(data) > MOST_BYTES:
        raise ValueError(f"{name} is larger than {MOST_BYTES} bytes")
    return data


def _check_owner(about: os.stat_result, what: str) -> None:
    if about.st_uid not in (0, os.geteuid()):
        raise ValueError(f"{what} belongs to uid {about.st_uid}")
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ValueError(f"others may write to {what} (mode {stat.S_IMODE(about.st_mode):04o})")


def read(text: str) -> Answer:
    """A file's body. Raises ``ValueError``."""
    head, gap, rest = text.partition("\n\n")
    magic, *lines = head.split("\n")
    if magic != MAGIC or not gap or (not rest.endswith("\n") and rest):
        raise ValueError("it is no answer of this version")
    values = dict(line.partition(" ")[::2] for line in lines)
    if values.get("fitness") not in VERDICTS or not all(values.get(name, "").isdecimal() for name in _NUMBERS):
        raise ValueError("a line is missing")
    made, good_until, refuse_until = (int(values[name]) for name in _NUMBERS)
    reasons = tuple(rest.rstrip("\n").split("\n")) if rest.strip() else ()
    return Answer(
        values.get("node", ""), values["fitness"], reasons, values.get("boot", ""), made, good_until, refuse_until,
        int(values.get("age", "-1")),
    )  # fmt: skip


def here(folder: str | None = None) -> Word:
    """What a hook on this node says now. ``FAULTLINE_GATE`` names another folder."""
    where = folder or os.environ.get("FAULTLINE_GATE") or FOLDER
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123  # pathlib costs more
            boot = file.read().strip()
        with open("/proc/uptime", encoding="ascii") as file:  # noqa: PTH123
            uptime = float(file.read().split()[0])
    except (OSError, ValueError, IndexError) as error:
        return _doubt(f"this host's uptime cannot be read: {error}")
    return word(where, boot, uptime)
