"""What a bundle does not say: secrets, users that the incident's jobs do not belong to, addresses.

A file that is attached to a ticket is read by people who may not read the logs. Secrets are removed as the agent removes
them. Users and addresses get a pseudonym, the same one throughout the bundle, so that it still shows that two lines
speak of the same one. Which names are users': those who ran jobs, those who did something about the incident, and
what stands where lines name a user. Names of hosts stay.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from collector.agent.redaction import redact

#: Fields that hold words of ours, keys of rows, or times: never what somebody wrote.
STRUCTURE = frozenset({
    "id", "layer", "event", "role", "severity", "category", "edge", "kind", "glyph", "level", "quality", "time_quality",
    "authority", "status", "root_event", "event_id", "incident_id", "time", "start", "end", "received_time", "t0", "at",
})  # fmt: skip
#: Accounts of the system: they are the same everywhere, and ordinary words in sentences.
NOBODYS = frozenset({"root", "slurm", "munge", "nobody", "daemon"})
_UNSPECIFIC = frozenset({"127.0.0.1", "0.0.0.0", "255.255.255.255", "::", "::1"})

_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")
_MAC = re.compile(r"(?<![\w:-])[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5}(?![\w:-])")
_MAIL = re.compile(r"[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){0,7}\.[A-Za-z]{2,24}(?![\w@])")
#: Numbers of people; those of the system are lower on every distribution.
_UID = re.compile(r"(?i)\b([a-z]{0,5}[ug]id|cancelled by)(\W{1,3})(\d{4,10})\b")
_NAMED = re.compile(
    r"""(?ix) (?: \b(?:user(?:name|id)?|ruser|logname|acct|account)["']?\s{0,2}[=:]\s{0,2}["']?
      | \b(?:for|by)\s(?:invalid\s)?user\s | \b(?:accepted|failed)\s[\w/-]{1,30}\sfor\s(?:invalid\suser\s)?
      | \buid=\d{1,10}\( | /(?:home|users)/ ) ([a-z_][\w.-]{0,31})"""
)
_WORD = re.compile(r"[A-Za-z_][\w.-]*")
#: A letter or digit outside of ASCII may belong to a name, or stand beside one ("A\u00b9carol").
_PART, _ASCII_PART = re.compile(r"[^._-]+"), re.compile(r"[A-Za-z0-9]+")


class Redactor:
    """Redacts the texts of one bundle.

    ``others``: known users; ``own``: users whose names stay. ``counts``: what was replaced, by kind ("secrets", "users",
    "addresses").
    """

    def __init__(self, others: Collection[str], own: Collection[str]) -> None:
        self._own = {name.lower() for name in own} | NOBODYS
        self._names: dict[str, str] = {}
        self._addresses: dict[str, str] = {}
        self._known = {name.lower() for name in others if len(name) > 1} - self._own
        self.counts: Counter[str] = Counter()

    def tree(self, value: Any) -> Any:
        """A document, or several, with all its texts redacted."""
        texts = self.texts(list(_texts(value)))
        return _rebuilt(value, iter(texts))

    def texts(self, texts: list[str]) -> list[str]:
        """Texts in an order: a key that several of them hold, line by line, is a secret as a whole."""
        clean = [text.encode("utf-8", "replace").decode() for text in texts]
        # The filter keeps lines as they are, so one pass over all texts can be cut again; it costs far less.
        whole, count = redact("\n".join(clean).encode())
        self.counts["secrets"] += count
        rows, out = whole.decode("utf-8", "replace").split("\n"), []
        place = 0
        for text in clean:
            size = text.count("\n") + 1
            out.append("\n".join(rows[place : place + size]))
            place += size
        for text in out:  # names that lines give away are replaced in every text
            self._learn(text)
        return [self._pseudonyms(text) for text in out]

    def _learn(self, text: str) -> None:
        for found in _NAMED.finditer(text):
            name = found[1].rstrip(".-").lower()
            if name not in self._own and not name.isdigit() and len(name) > 1:
                self._known.add(name)

    def _pseudonyms(self, text: str) -> str:
        for pattern, replace in (
            (_MAC, self._address), (_IPV6, self._ipv6), (_IPV4, self._ipv4), (_MAIL, self._mail), (_UID, self._uid),
            (_WORD, self._word),
        ):  # fmt: skip
            text = pattern.sub(replace, text)
        return text

    def _address(self, found: re.Match[str]) -> str:
        self.counts["addresses"] += 1
        return self._addresses.setdefault(found[0].lower(), f"address-{len(self._addresses) + 1}")

    def _ipv4(self, found: re.Match[str]) -> str:
        return self._ip(found, ipaddress.IPv4Address)

    def _ipv6(self, found: re.Match[str]) -> str:
        return self._ip(found, ipaddress.IPv6Address)

    def _ip(self, found: re.Match[str], kind: Callable[[str], object]) -> str:
        try:
            kind(found[0])
        except ValueError:  # a time, a PCI address, a version
            return found[0]
        return found[0] if found[0] in _UNSPECIFIC else self._address(found)

    def _uid(self, found: re.Match[str]) -> str:
        return f"{found[1]}{found[2]}{self._user(found[3])}"

    def _mail(self, found: re.Match[str]) -> str:
        return f"{self._user(found[0].lower())}@..."

    def _word(self, found: re.Match[str]) -> str:
        word = found[0]
        name = word.rstrip(".-")
        if name.lower() in self._known:
            return self._user(name.lower()) + word[len(name) :]
        return _PART.sub(lambda part: self._part(part[0]), word)

    def _part(self, part: str) -> str:
        if part.lower() in self._known:
            return self._user(part.lower())
        if part.isascii():
            return part
        return _ASCII_PART.sub(
            lambda one: self._user(one[0].lower()) if one[0].lower() in self._known else one[0], part
        )

    def _user(self, name: str) -> str:
        self.counts["users"] += 1
        return self._names.setdefault(name, f"user-{len(self._names) + 1}")


def _texts(value: Any) -> Iterator[str]:
    """The texts that ``_rebuilt`` replaces, in its order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key not in STRUCTURE:
                yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)


def _rebuilt(value: Any, texts: Iterator[str]) -> Any:
    if isinstance(value, str):
        return next(texts)
    if isinstance(value, Mapping):
        return {key: item if key in STRUCTURE else _rebuilt(item, texts) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rebuilt(item, texts) for item in value]
    return value
