"""The rows of a statement, batch by batch, with the engine's errors as the engine's.

While rows stream, pyarrow raises what the engine reports as a plain ``OSError``: as "the other side is gone" it would
end an answer early, as an error of the service it would say nothing of the query.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa

#: The engine's exceptions by the first words of their texts: "Out of Memory Error: ..." is an OutOfMemoryException.
_KINDS: dict[str, type[duckdb.Error]] = {
    name.removesuffix("Exception").lower(): kind
    for name, kind in vars(duckdb).items()
    if isinstance(kind, type) and issubclass(kind, duckdb.Error) and name.endswith("Exception")
}


def batches(reader: Any) -> Iterator[pa.RecordBatch]:
    """The batches of a reader of the engine. Raises ``duckdb.Error`` and ``MemoryError``."""
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except MemoryError:  # one of Arrow's is both
            raise
        except (OSError, pa.ArrowException) as problem:
            text = str(problem)
            kind = text.split(" Error:", 1)[0].replace(" ", "").lower()
            raise _KINDS.get(kind, duckdb.Error)(text) from None
        yield batch
