"""Queries on the store: the query language (`kql`), saved queries (`library`, read by `saved`) and reports.

Reads the store and what the correlator concluded; nothing here writes either.
"""
