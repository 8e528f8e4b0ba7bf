"""Final documents are read from the store when they are needed: in memory they would be half of what a long history takes.

A verdict of some hundred bytes in the store takes four thousand as Python objects, an incident fourteen thousand, and
almost none is looked at again. What ticks ask of every document stays (``Frozen.NAMES``), and the digest under which
the history knows it, which tells whether a new document says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import Select

from correlator.incidents.lemons import Rooted, rooted
from correlator.live.state import LiveConclusions, Touched
from correlator.model.json_text import from_json, has_digest, sorted_json
from store.questions.conclusions import documents_of_incidents, documents_of_runs

if TYPE_CHECKING:
    from store.door import Asks


class Documents:
    """Reads the documents of one cluster from the store: verdicts by the keys of runs, or incidents by their ids."""

    def __init__(self, store: Asks, question: Callable[[str | None, list[str]], Select[Any]], cluster: str | None) -> None:  # fmt: skip
        self._store, self._question, self._cluster = store, question, cluster
        self._last: tuple[str, dict[str, Any]] | None = None

    def texts(self, names: Iterable[str]) -> dict[str, str]:
        """The stored JSON of each. Raises ``LookupError`` for one that is not there."""
        wanted = list(names)
        found = {r["name"]: r["document"] for r in self._store.ask(self._question(self._cluster, wanted))}
        if lost := [name for name in wanted if name not in found]:
            raise LookupError(f"no document of {lost[0]} (cluster {self._cluster}) in the store, which had it")
        return found

    def one(self, name: str) -> dict[str, Any]:
        """A whole document; the last one is kept, for whoever asks for its keys one by one."""
        if self._last is None or self._last[0] != name:
            self._last = name, _parsed(self.texts([name])[name])
        return self._last[1]


class Frozen(Mapping[str, Any]):
    """A final document that is in the store. Whatever is not held is read there each time, so read many at once
    (``thawed``)."""

    #: The held keys.
    NAMES: ClassVar[tuple[str, ...]] = ()
    #: What is the same in every final document.
    FINAL: ClassVar[Mapping[str, Any]] = {}
    __slots__ = ("_digest", "_held", "documents", "name")

    def __init__(self, name: str, held: tuple[Any, ...], digest: str, documents: Documents) -> None:
        """``held``: the values of ``NAMES``, in order."""
        self.name, self._held, self._digest, self.documents = name, held, digest, documents

    def __getitem__(self, key: str) -> Any:
        if key in self.FINAL:
            return self.FINAL[key]
        if key in self.NAMES:
            return self._held[self.NAMES.index(key)]
        if key == "awaited":  # only documents that are held back have it (awaited.py), and those stay as they are
            raise KeyError(key)
        return self.documents.one(self.name)[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.documents.one(self.name))

    def __len__(self) -> int:
        return len(self.documents.one(self.name))

    def same_as(self, document: Mapping[str, Any]) -> bool:
        """Does ``document`` say the same? When it was first published does not count."""
        stated = {key: value for key, value in document.items() if key != "detected_at"}
        return has_digest(sorted_json(stated), self._digest)


class FrozenVerdict(Frozen):
    NAMES = ("category", "incident_id", "confidence", "end", "root_cause")
    FINAL: ClassVar[Mapping[str, Any]] = {"final": True, "final_at": None, "waits_for": []}
    __slots__ = ()


class FrozenIncident(Frozen):
    NAMES = ("id", "start", "end", "severity", "category")
    FINAL: ClassVar[Mapping[str, Any]] = {"status": "final", "final_at": None, "waits_for": []}
    __slots__ = ("rooted",)

    def __init__(self, name: str, held: tuple[Any, ...], digest: str, documents: Documents, rooted: Rooted) -> None:
        """``rooted``: what it counts for in the record of a node (lemons.py)."""
        super().__init__(name, held, digest, documents)
        self.rooted = rooted


_of_verdict, _of_incident = itemgetter(*FrozenVerdict.NAMES), itemgetter(*FrozenIncident.NAMES)


def roots_of(incidents: Iterable[Mapping[str, Any]]) -> list[Rooted]:
    """Where incidents are rooted, without reading frozen ones."""
    return [one.rooted if isinstance(one, FrozenIncident) else rooted(one) for one in incidents]


def whole(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document as it can be changed and stored."""
    return document.documents.one(document.name) if isinstance(document, Frozen) else document


def freeze(
    store: Asks, known: LiveConclusions, touched: Touched, published: Callable[[str, str | None, str], str | None]
) -> None:
    """Lets go of the final ones among the documents that a tick has concluded and stored. ``published``: the digest of the
    last version of a document, by kind, cluster and name."""
    of_runs = Documents(store, documents_of_runs, known.cluster)
    of_incidents = Documents(store, documents_of_incidents, known.cluster)
    verdicts, incidents = known.result.verdicts, known.result.incidents
    for key in verdicts.keys() & touched.verdicts:  # most runs that a tick touches have none
        verdict = verdicts[key]
        if isinstance(verdict, Frozen) or not verdict["final"] or "awaited" in verdict:
            continue
        if stated := published("verdict", known.cluster, key):
            verdicts[key] = FrozenVerdict(key, _of_verdict(verdict), stated, of_runs)
    for place in touched.incidents:
        incident = incidents[place]
        if isinstance(incident, Frozen) or incident["status"] != "final" or "awaited" in incident:
            continue
        if stated := published("incident", known.cluster, incident["id"]):
            incidents[place] = FrozenIncident(
                incident["id"], _of_incident(incident), stated, of_incidents, rooted(incident)
            )


def thaw(known: LiveConclusions) -> None:
    """Reads all documents of a cluster: they are going to be stored anew."""
    result = known.result
    for key, document in thawed(result.verdicts.values()).items():
        result.verdicts[key] = document
    incidents = thawed(result.incidents)
    result.incidents[:] = [incidents.get(i["id"], i) for i in result.incidents]


def thawed(documents: Iterable[Mapping[str, Any] | None]) -> dict[str, dict[str, Any]]:
    """The frozen ones among documents of one kind and one cluster, whole, by name; read in one query."""
    return {name: _parsed(text) for name, text in frozen_texts(documents).items()}


def _parsed(text: str) -> dict[str, Any]:
    """A document as it was concluded, without when it was first published: that is added where it is stored."""
    document: dict[str, Any] = from_json(text)
    if "detected_at" in document:
        document["detected_at"] = None
    return document


def frozen_texts(documents: Iterable[Mapping[str, Any] | None]) -> dict[str, str]:
    """The stored JSON of the frozen ones among documents of one kind and one cluster, by name; read in one query."""
    # Nearly all of thousands are none or no frozen ones: whether one is an instance of a class of mappings takes long to ask.
    others = (one for one in documents if one is not None and type(one) is not dict)
    frozen = [one for one in others if isinstance(one, Frozen)]
    return frozen[0].documents.texts(one.name for one in frozen) if frozen else {}
