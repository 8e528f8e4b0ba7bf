"""Compares the conclusions before with those of now: which documents differ.

A tick knows where it concluded anew, and documents are compared only there. A document that is the same object was
published and stored already and is not compared again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from correlator.live.state import LiveConclusions, Touched

Document = dict[str, Any]


def everything(found: LiveConclusions) -> Touched:
    """All documents, for a cluster without earlier conclusions."""
    return Touched(list(range(len(found.incidents))), {}, set(found.verdicts))


def same_objects(found: LiveConclusions, before: LiveConclusions | None) -> LiveConclusions:
    """The conclusions, with the objects of ``before`` for all documents that are equal; ``touched`` keeps only those
    that differ.

    A new incident inherits its detection time. ``found`` is modified in place: no other thread has it yet.
    """
    if before is None or found is before:
        return found
    touched = found.change.touched or _compared(found, before)
    again = []
    for place in touched.incidents:
        document = found.incidents[place]
        old, _ = touched.gone.get(document["id"], (None, None))
        found.incidents[place] = _same(document, old)
        if found.incidents[place] is old:
            del touched.gone[document["id"]]
        else:
            again.append(place)
    verdicts = {}
    for key in touched.verdicts:
        now, then = found.verdicts.get(key), before.verdicts.get(key)
        if now is not None and now is not then:
            verdicts[key] = _same(now, then)
    found.verdicts.update(verdicts)
    keys = {k for k in touched.verdicts if found.verdicts.get(k) is not before.verdicts.get(k)}
    found.change = replace(found.change, touched=Touched(again, touched.gone, keys))
    return found


def _compared(found: LiveConclusions, before: LiveConclusions) -> Touched:
    """The changes between two sets of conclusions where everything was concluded anew."""
    gone = {i["id"]: (i, s) for i, s in zip(before.incidents, before.stories, strict=True)}
    return Touched(list(range(len(found.incidents))), gone, {*found.verdicts, *before.verdicts})


def _same(document: Document, old: Document | None) -> Document:
    if old is None or document is old:
        return document
    if "detected_at" in old:
        document = {**document, "detected_at": old["detected_at"]}
    return old if document == old else document


__all__ = ["Touched", "everything", "same_objects"]
