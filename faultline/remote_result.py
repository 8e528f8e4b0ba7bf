"""A service's answer to a query, in the form that ``queries.kql.format`` prints."""

from __future__ import annotations

import json
from typing import Any


class RemoteResult:
    """``columns``, ``rows``, ``truncated`` as in ``queries.kql.run``."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.columns = [(c["name"], c["type"]) for c in answer["columns"]]
        self.rows: list[list[Any]] = answer["rows"]
        self.truncated = bool(answer.get("truncated"))
        self.name = str(answer.get("name") or "")
        self.elapsed_ms = float(answer.get("elapsed_ms") or 0.0)
        self.others = [RemoteResult(other) for other in answer.get("others") or ()]

    def arrow(self) -> Any:
        import pyarrow as pa

        columns: list[Any] = list(zip(*self.rows, strict=True)) if self.rows else [[] for _ in self.columns]
        texts = [
            [v if v is None or isinstance(v, str | int | float | bool) else json.dumps(v) for v in c] for c in columns
        ]
        return pa.table({name: pa.array(list(values)) for (name, _), values in zip(self.columns, texts, strict=True)})

    @property
    def table(self) -> Any:
        return self.arrow()

    def to_json(self) -> str:
        named = [{"name": n, "type": t} for n, t in self.columns]
        return json.dumps({"columns": named, "rows": self.rows}, ensure_ascii=False)
