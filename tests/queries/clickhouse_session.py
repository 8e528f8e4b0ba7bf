"""ClickHouse in this process, through chdb: the tables of a case in, the answer of a compiled query out."""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache
from typing import Any

import pyarrow as pa

from queries.kql import Catalog, Column, KqlRuntimeError, Table
from queries.kql.compile import Compiled, compile_script
from queries.kql.dialect import PHYSICAL
from queries.kql.engines import CLICKHOUSE
from queries.kql.engines.clickhouse import TYPES, parameters
from queries.kql.run import Result


@cache
def session() -> Any:
    """One for the life of the process: starting it costs a third of a second, and there can be only one."""
    from chdb.session import Session

    made = Session()
    made.query("CREATE DATABASE kql ENGINE = Memory")
    return made


def load(tables: dict[str, Any], cell: Any) -> Catalog:
    """Replaces the tables of the previous case by those of this one."""
    made = {}
    for name, table in tables.items():
        columns = ", ".join(f'"{n}" Nullable({TYPES[PHYSICAL[k]]})' for n, k in table["columns"])
        session().query(f'DROP TABLE IF EXISTS kql."{name}"')
        session().query(f'CREATE TABLE kql."{name}" ({columns}) ENGINE = Memory')
        kinds = [k for _, k in table["columns"]]
        rows = [json.dumps([cell(v, k) for v, k in zip(row, kinds, strict=True)], default=str) for row in table["rows"]]
        if rows:
            session().query(f'INSERT INTO kql."{name}" FORMAT JSONCompactEachRow ' + "\n".join(rows))
        made[name] = Table(name, tuple(Column(n, k) for n, k in table["columns"]), f'kql."{name}"')
    return Catalog(made)


def run(text: str, catalog: Catalog, now: datetime | None = None) -> Result:
    """The answer to the last tabular statement."""
    return answer(compile_script(text, catalog, now=now, engine=CLICKHOUSE, probe=probe)[-1])


def probe(one: Compiled) -> list[tuple[Any, ...]]:
    """The rows of a subquery, for operators whose columns depend on them."""
    table = answer(one).table
    return list(zip(*(table.column(i).to_pylist() for i in range(table.num_columns)), strict=True))


def answer(one: Compiled) -> Result:
    """A compiled statement's answer."""
    try:
        stated = session().query(one.sql, "Arrow", params=parameters(one.names, one.parameters))
    except (
        RuntimeError
    ) as problem:  # chdb has two classes of one name; the one that is raised is not the one it exports
        session().query("SELECT 1", "Arrow")  # the rest of a broken answer would precede the next one
        raise KqlRuntimeError(f"the query stopped while running: {problem}") from None
    table = pa.ipc.open_file(pa.BufferReader(stated.bytes())).read_all()
    columns = [(c.name, c.type) for c in one.columns]
    bare = [c.cast(pa.timestamp("us")) if pa.types.is_timestamp(c.type) else c for c in table.columns]
    return Result(columns, pa.table(bare, names=[n for n, _ in columns]), one.sql)
