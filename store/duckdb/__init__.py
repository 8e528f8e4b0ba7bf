"""DuckDB behind the door: how questions are spelled for it, how tables are made, how answers are read.

Nothing outside ``store`` and ``queries.kql`` imports the library. A second engine is a package beside this one.
"""
