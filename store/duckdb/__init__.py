"""DuckDB behind the door (``store.door``): one file, one writer, and everything that is true of this engine only.

Owns: its entry among the engines (``engine``), the connection and its transactions (``store``), how it is opened (``opening``), what the other modules may do with it
(``open_store``), how questions are spelled (``dialect``, ``derived``), how rows go in and come out (``writing``, ``arrow``,
``querying``), how far each file was read (``ledger``), tables and views (``schema``, ``intake_schema``), closed segments
(``segments``), days as Parquet files (``archive``, ``archive_file``, ``line_heads``), a person's view (``visible``), copies
(``copies``), figures (``figures``), when the log is written into the file (``checkpoints``), and what a damaged log costs
(``damage``, ``log_head``, ``commit_mark``). What holds for every engine stays in ``store``.

Nothing outside ``store`` and ``queries.kql`` imports the library or this package. A second engine is a package beside this one.
"""
