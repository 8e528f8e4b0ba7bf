"""R18: after which operators and sources the rows have an order that a row function may rely on."""

from __future__ import annotations

#: R18: operators after which rows are serialized, and are not; all others keep the state before. The list is from
#: Kusto's page on `serialize`; mv-expand, which the page on window functions counts among those that keep it, keeps it
#: here.
SERIAL = dict.fromkeys(("sort", "top", "top-hitters", "getschema", "serialize", "scan"), True) | dict.fromkeys(
    ("count", "distinct", "evaluate", "facet", "join", "make-series", "reduce", "sample", "sample-distinct", "summarize", "top-nested"),
    False,
)  # fmt: skip
#: Sources whose rows are in the order in which they are written.
IN_ORDER = frozenset({"range", "datatable", "print"})
