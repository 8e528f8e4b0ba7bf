"""How sure a verdict is, in words and as a number: the same on pages, in the terminal, in mails and in Slurm's AdminComment.

Standard library only: the bare package shows verdicts too.
"""

from __future__ import annotations

from correlator.model.categories import UNKNOWN

#: From this confidence on a cause is called so.
_STEPS = ((0.95, "Almost certain"), (0.8, "Very likely"), (0.6, "Likely"), (0.4, "Possible"), (0.0, "Doubtful"))
NOT_KNOWN = "Not known"


def sure_of(confidence: object, category: str | None) -> float | None:
    """The confidence in the cause that a verdict names, 0..1; None if it names none.

    A verdict ``unknown`` has a number as well: how often such verdicts were right to leave the cause open. It says nothing of
    a cause, so nobody is shown it as if it did.
    """
    if category == UNKNOWN or not isinstance(confidence, (int, float)):
        return None
    return float(confidence)


def in_words(confidence: object, category: str | None) -> str:
    """One or two words.

    >>> in_words(0.97, "infra.gpu"), in_words(0.97, "unknown"), in_words(None, "infra.gpu")
    ('Almost certain', 'Not known', 'Not rated')
    """
    if category == UNKNOWN:
        return NOT_KNOWN
    sure = sure_of(confidence, category)
    return "Not rated" if sure is None else next(words for floor, words in _STEPS if sure >= floor or not floor)


def stated(category: str | None, confidence: object) -> str:
    """A verdict's category with its number.

    >>> stated("infra.network", 0.993), stated("unknown", 0.107)
    ('infra.network, confidence 0.99', 'unknown: the cause is not known')
    """
    if category == UNKNOWN or not category:
        return f"{UNKNOWN}: the cause is not known"
    sure = sure_of(confidence, category)
    return f"{category}, not rated" if sure is None else f"{category}, confidence {sure:.2f}"


def asks_for(category: str | None) -> str:
    """What a verdict's ``change_my_mind`` is an answer to.

    >>> asks_for("unknown"), asks_for("app.oom")
    ('What would make it known', 'What would change this verdict')
    """
    return "What would make it known" if category == UNKNOWN else "What would change this verdict"
