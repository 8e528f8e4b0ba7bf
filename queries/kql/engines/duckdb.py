"""DuckDB: templates are in its spelling; only the words of our own are defined here."""

from __future__ import annotations

from sqlalchemy.dialects.postgresql.base import PGDialect

from queries.kql.engines.engine import Engine
from queries.kql.engines.spelling import Word


class DuckDBDialect(PGDialect):
    """PostgreSQL's quoting and syntax, DuckDB's numbered parameters."""

    name = "kql_duckdb"
    supports_statement_cache = False

    def __init__(self, engine: Engine) -> None:
        super().__init__(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call]
        self.engine = engine


_PLACE = "CASE WHEN <1> < 0 THEN '$[#-' || CAST(-<1> AS VARCHAR) || ']' ELSE '$[' || CAST(<1> AS VARCHAR) || ']' END"
# In a path, `*` means all members even between quotes, and no key may be empty; a pointer accepts both literally.
_KEY = """CASE WHEN <1> IN ('*', '') THEN '/' || <1> ELSE '$."' || replace(replace(<1>, '\\', '\\\\'), '"', '\\"') || '"' END"""
_ZONE = "'[+-][0-9]{2,2}:?[0-9]{2,2}$'"
_LAYOUTS = ("%m/%d/%Y %I:%M:%S %p", "%m/%d/%Y %H:%M:%S", "%m/%d/%Y %H:%M", "%m/%d/%Y", "%a, %d %b %Y %H:%M:%S GMT",
            "%d %b %Y", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%m-%d-%Y")  # fmt: skip
_MOST_ITEMS = 20_000
WORDS: dict[str, Word] = {
    # Times. An offset at the end of a text shifts it to UTC; the plain cast would drop it.
    "text_time": f"CASE WHEN regexp_matches(<0>, {_ZONE}) AND regexp_matches(<0>, '[T ][0-9]') "
    f"THEN TRY_CAST(regexp_replace(<0>, {_ZONE}, '') AS TIMESTAMP) - "
    "(CASE WHEN regexp_extract(<0>, '([+-])[0-9]{2,2}:?[0-9]{2,2}$', 1) = '-' THEN -1 ELSE 1 END) * "
    "to_minutes(TRY_CAST(regexp_extract(<0>, '[+-]([0-9]{2,2}):?[0-9]{2,2}$', 1) AS INTEGER) * 60 + "
    "TRY_CAST(regexp_extract(<0>, '([0-9]{2,2})$', 1) AS INTEGER)) "
    f"ELSE coalesce(TRY_CAST(<0> AS TIMESTAMP), try_strptime(<0>, {list(_LAYOUTS)})) END",
    "time_of_parts": "TRY(make_timestamp(<*>))",  # null if there is no such day
    "time_text": "(strftime(<0>, '%Y-%m-%dT%H:%M:%S.%f') || '0Z')",
    # Numbers
    "real_text": "(CASE WHEN isnan(<0>) THEN 'NaN' WHEN isinf(<0>) THEN CASE WHEN <0> > 0 THEN 'Infinity' "
    "ELSE '-Infinity' END ELSE CAST(<0> AS VARCHAR) END)",
    "decimal_remainder": "(((<0> % nullif(<1>, 0)) + abs(<1>)) % abs(<1>))",
    "hex_number": "TRY_CAST(<0> AS BIGINT)",
    "bits_and": "(<0> & <1>)", "bits_or": "(<0> | <1>)", "bits_not": "(~<0>)",
    "shift_left": "(<0> << (<1>))", "shift_right": "(<0> >> (<1>))",
    "ipv4_number": "list_reduce(list_transform(string_split(<0>, '.'), lambda ko: CAST(ko AS BIGINT)), "
    "lambda ka, ko: ka * 256 + ko)",
    # Dynamics
    "json_member": f"json_extract(<0>, {_KEY})",
    "json_item": f"json_extract(<0>, {_PLACE})",  # a negative index counts from the end
    "json_real": "to_json(<0>)",
    "json_text": "json_extract_string(<0>, '$')",
    "json_list": "to_json(<0>)",  # a list whose items are JSON already
    "json_items": "CASE WHEN <0> IS NULL THEN [NULL]::JSON[] WHEN json_type(<0>) = 'ARRAY' THEN TRY_CAST(<0> AS JSON[]) "
    f"WHEN json_type(<0>) = 'OBJECT' THEN list_transform(json_keys(<0>), lambda kx: <1>(kx, json_extract(<0>, {_KEY.replace('<1>', 'kx')})))::JSON[] "
    "ELSE [<0>]::JSON[] END",
    # Lists
    "lists_joined": "flatten(list_filter([<*>]::JSON[], lambda kx: json_type(kx) = 'ARRAY')::JSON[][])",
    "list_lookup": "map(<0>, <1>)[<2>]",
    "list_rows": lambda args, tail: f"list_transform(list_zip({', '.join(args)}), "  # parallel lists as rows
    f"lambda kx: [{', '.join(f'kx[{place + 1}]' for place in range(len(args)))}])",
    # In the order first seen. Each item is searched for from the start: the time is quadratic in the length.
    "list_unique": f"list_filter(CASE WHEN len(<0>) > {_MOST_ITEMS} THEN error('kql: an array of more than {_MOST_ITEMS} "
    "items is too long to be used as a set') ELSE <0> END, lambda kv, ki: list_position(<0>, kv) = ki)",
    "rows_of_range": "range(<*>)",  # a relation with one column, `range`
}  # fmt: skip
DUCKDB = Engine("duckdb", DuckDBDialect, WORDS)
