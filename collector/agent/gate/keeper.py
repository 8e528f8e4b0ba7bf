"""Keeps the gate's answer: asks the service slowly, looks at the node often, and writes both into one small file.

The service computes what it knows of the node (``GET /api/v1/gate/HOST``). Without it, its last answer counts for two
hours, ever older, and then nothing is known: doubtful, never unfit. The right to refuse a job is the service's to grant
(``gate = "drain"`` only asks for it), and it ends minutes after the last word of the service.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import secrets
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from collector.agent.console import log
from collector.agent.gate.answer_file import (
    ANSWER,
    DOUBTFUL,
    FIT,
    KEY,
    KEY_BYTES,
    UNFIT,
    VERDICTS,
    Answer,
    plain,
    signed,
)
from collector.agent.gate.seen import Seen, Sight
from collector.agent.sender import Answer as Response
from collector.agent.source import Context

#: Modes of ``gate`` in the agent's configuration.
OFF, LOG, DRAIN = "off", "log", "drain"
MODES = (OFF, LOG, DRAIN)
#: Seconds between two questions to the service.
ASK_EVERY_S = 120.0
#: The first question comes at a random moment within so many seconds. So do the next ones, up to ``EAGER``, until the node is fit: a
#: service knows a new node from its first lines and states, and only as of when it last concluded.
SOON_S, EAGER = 30.0, 5
#: Seconds between two looks at the node, and of the file's life without a new one.
LOOK_EVERY_S, GOOD_S = 15.0, 600.0
#: Seconds that the service's answer counts without a newer one.
EXPIRES_S = 7200.0
#: Seconds that a granted refusal lasts at most.
GRANT_S = 600.0
_MOST_REASONS = 32

Ask = Callable[[str], Response]


@dataclass(frozen=True)
class ServiceAnswer:
    """The service's answer. ``at``: seconds since boot; ``age``: seconds it was old then; ``granted_s``: for how long an
    unfit answer may refuse jobs."""

    verdict: str
    reasons: tuple[str, ...]
    at: float
    age: float = 0.0
    granted_s: float = 0.0


@dataclass
class Keeper:
    """Runs in a thread of its own. ``ask(path)`` sends a GET to the service with the agent's token."""

    context: Context
    folder: Path
    ask: Ask
    cluster: str = ""
    mode: str = LOG
    chance: Callable[[], float] = random.random
    trouble: str = ""
    answer: Answer | None = None
    latest: ServiceAnswer | None = None
    seen: Seen = field(init=False)
    _key: bytes = b""
    _ask_at: float = 0.0
    _started: float = 0.0
    _questions: int = 0
    _reported: tuple[str, bool] | None = None

    def __post_init__(self) -> None:
        self.seen = Seen(self.context, self.folder / "seen.json")

    def run(self, stopping: threading.Event) -> None:
        self.open()
        while True:
            # Whatever happens here, the file grows old by itself, and delivery goes on.
            try:
                self.turn()
            except Exception as error:
                self.trouble = f"{type(error).__name__}: {error}"
            if stopping.wait(LOOK_EVERY_S * (0.8 + 0.4 * self.chance())):
                return

    def open(self) -> None:
        self._started = self.context.uptime()
        self._ask_at = self._started + SOON_S * self.chance()
        self.seen.open()

    def turn(self) -> None:
        """One look, a question to the service if it is due, and the file anew."""
        sights = self.seen.look()
        now = self.context.uptime()
        if now >= self._ask_at:
            self._ask_at = now + ASK_EVERY_S * (0.75 + 0.5 * self.chance())
            self._ask(any(sight.verdict == UNFIT for sight in sights))
            if self._questions < EAGER and (self.latest is None or self.latest.verdict != FIT):
                self._ask_at = now + SOON_S * (0.75 + 0.5 * self.chance())
        self.answer = self.joined(sights)
        self._write(self.answer)
        self._report(self.answer)

    def _ask(self, unfit: bool) -> None:
        wanted = {
            **({"cluster": self.cluster} if self.cluster else {}),
            **({"drain": "yes"} if self.mode == DRAIN else {}),
            **({"unfit": "yes"} if unfit else {}),
        }
        self._questions += 1
        path = f"/api/v1/gate/{quote(self.context.host, safe='')}"
        response = self.ask(path + (f"?{urlencode(wanted)}" if wanted else ""))
        if response.code != 200:
            self.trouble = f"HTTP {response.code}: {response.detail}" if response.code else response.detail
            return
        try:
            self.latest = _answer_of(json.loads(response.text), self.context.uptime())
            self.trouble = ""
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self.trouble = f"the service's answer cannot be read: {type(error).__name__}: {error}"

    def joined(self, sights: list[Sight]) -> Answer:
        """The service's answer and what is seen now, as one."""
        now = self.context.uptime()
        found = [(sight.verdict, f"{sight.text} [seen by the agent]") for sight in sights]
        latest, refuse_until, age = self.latest, 0.0, -1
        if latest is not None and now - latest.at < EXPIRES_S:
            age = int(latest.age + now - latest.at)
            found += [(latest.verdict, reason) for reason in latest.reasons] or [(latest.verdict, "")]
            refuse_until = latest.at + min(latest.granted_s, GRANT_S) if latest.granted_s else 0.0
        else:
            since = self._started if latest is None else latest.at
            what = "given no answer" if self.trouble.startswith("HTTP ") else "not been reached"
            doubt = f"the service has {what} for {_lasting(now - since)}"
            if not self._questions:
                doubt = f"the service has not been asked yet; it is within {SOON_S:g} s of the agent's start"
            found.append((DOUBTFUL, f"{doubt}: {self.trouble}" if self.trouble else doubt))
        verdict = max((verdict for verdict, _ in found), key=VERDICTS.index, default=FIT)
        found.sort(key=lambda one: -VERDICTS.index(one[0]))  # the gravest first: it is why a job is refused
        reasons = tuple(plain(text) for _, text in found if text)
        refuses = verdict == UNFIT and self.mode == DRAIN
        return Answer(
            self.context.host, verdict, reasons, self.context.boot_id(), int(now), int(now + GOOD_S),
            int(refuse_until) if refuses else 0, age,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------------- the file

    def _write(self, answer: Answer) -> None:
        try:
            _own(self.folder)
            key = self._key or self._key_of_file()
            _replace(self.folder / ANSWER, signed(answer, key))
            self._key = key
        except OSError as error:
            self.trouble = f"{self.folder}: {error.strerror or error}"

    def _key_of_file(self) -> bytes:
        path = self.folder / KEY
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                about, key = os.fstat(handle), os.read(handle, 4096)
            finally:
                os.close(handle)
            closed = stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077
            if closed and len(key) >= KEY_BYTES:
                return key
        key = secrets.token_bytes(KEY_BYTES)
        _replace(path, key)
        return key

    def _report(self, answer: Answer) -> None:
        """One line in the agent's log for each change of the answer."""
        refuses = answer.refuse_until > self.context.uptime()
        before, self._reported = self._reported, (answer.verdict, refuses)
        if before != self._reported:
            why = f": {'; '.join(answer.reasons)}" if answer.reasons else ""
            also = "; jobs are refused" if refuses else ""
            log(f"gate: this node is {answer.verdict}{also}{why}")

    def status(self) -> dict[str, Any]:
        answer = self.answer
        return {
            "mode": self.mode, "fitness": answer.verdict if answer else None, "reasons": list(answer.reasons) if answer else [],
            "refuses": bool(answer and answer.refuse_until > self.context.uptime()), "trouble": self.trouble or None,
        }  # fmt: skip


def _answer_of(document: dict[str, Any], now: float) -> ServiceAnswer:
    """The service's JSON. Raises ``ValueError``, ``KeyError``, ``TypeError``."""
    verdict = document["fitness"]
    if verdict not in VERDICTS:
        raise ValueError(f"fitness {verdict!r}")
    reasons = []
    for reason in document["reasons"][:_MOST_REASONS]:
        since = f", since {reason['since'][:19]}Z" if reason.get("since") else ""
        # What is in brackets is evidence: who asks on behalf of a user leaves it out (parsers/documents/hook.py).
        text = plain(str(reason["text"]))[:180].replace(" [", " (")
        reasons.append(plain(f"{text} [{str(reason['evidence'])[:80]}{since}]"))
    drain = document.get("drain") or {}
    granted = float(drain.get("until_s") or 0.0) if drain.get("granted") is True else 0.0
    return ServiceAnswer(verdict, tuple(reasons), now, float(document["age_s"]), granted)


def _own(folder: Path) -> None:
    """Makes the folder, closed to others. Raises ``OSError`` if it is not the agent's own."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(parents=True, mode=0o700)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
        raise OSError(0, f"is no folder of uid {os.geteuid()}; remove it")
    if about.st_mode & 0o077:
        folder.chmod(0o700)


def _replace(path: Path, data: bytes) -> None:
    """Writes a file that only its owner reads; readers see the old or the new one, whole."""
    new = path.with_name(f".{path.name}.new")
    with contextlib.suppress(FileNotFoundError):
        new.unlink()
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, data)
    finally:
        os.close(handle)
    new.replace(path)


def _lasting(seconds: float) -> str:
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"
