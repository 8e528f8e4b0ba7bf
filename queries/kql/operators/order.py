"""R18: behind which operators and sources the rows have an order that a row function may rest on."""

from __future__ import annotations

#: R18: operators behind which rows are serialized, and are not; behind all others they are as they were before. Kusto's page
#: of `serialize` has the list; mv-expand, which that of the window functions counts among those that keep it, keeps it here.
SERIAL = dict.fromkeys(("sort", "top", "top-hitters", "getschema", "serialize", "scan"), True) | dict.fromkeys(
    ("count", "distinct", "evaluate", "facet", "join", "make-series", "reduce", "sample", "sample-distinct", "summarize", "top-nested"),
    False,
)  # fmt: skip
#: Sources whose rows are in the order in which they are written down.
IN_ORDER = frozenset({"range", "datatable", "print"})
