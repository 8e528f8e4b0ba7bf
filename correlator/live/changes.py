"""Compares the conclusions before with those of now: which documents differ.

A tick knows where it concluded anew, and documents are compared only there. A document that is the same object was
published and stored already and is not compared again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from correlator.live.frozen import Frozen
from correlator.live.state import LiveConclusions, Touched

Document = Mapping[str, Any]


def everything(found: LiveConclusions) -> Touched:
    """All documents, for a cluster without earlier conclusions."""
    return Touched(list(range(len(found.result.incidents))), {}, set(found.result.verdicts))


def same_objects(found: LiveConclusions, before: LiveConclusions | None) -> LiveConclusions:
    """The conclusions, with the objects of ``before`` for all documents that are equal; ``touched`` keeps only those
    that differ.

    A new incident inherits its detection time. ``found`` is modified in place: no other thread has it yet.
    """
    if before is None or found is before:
        return found
    touched = found.change.touched or _compared(found, before)
    incidents, verdicts = found.result.incidents, found.result.verdicts
    again = []
    for place in touched.incidents:
        document = incidents[place]
        old, _ = touched.gone.get(document["id"], (None, None))
        incidents[place], same = _same(document, old)
        if same:
            del touched.gone[document["id"]]
        else:
            again.append(place)
    keys = set()
    for key in touched.verdicts:
        now, then = verdicts.get(key), before.result.verdicts.get(key)
        if now is not None and then is not None:
            verdicts[key], same = _same(now, then)
        else:
            same = now is then
        if not same:
            keys.add(key)
    found.change = replace(found.change, touched=Touched(again, touched.gone, keys))
    return found


def _compared(found: LiveConclusions, before: LiveConclusions) -> Touched:
    """The changes between two sets of conclusions where everything was concluded anew."""
    then = before.result
    gone = {i["id"]: (i, s) for i, s in zip(then.incidents, before.memory.basis.stories, strict=True)}
    return Touched(list(range(len(found.result.incidents))), gone, {*found.result.verdicts, *then.verdicts})


def _same(document: Document, old: Document | None) -> tuple[Document, bool]:
    """The document to keep, and whether it states the same as the one before."""
    if old is None or document is old:
        return document, old is not None
    if isinstance(old, Frozen):  # which is of no use for storing
        return document, old.same_as(document)
    return (old, True) if document == old else (document, False)


__all__ = ["Touched", "everything", "same_objects"]
