"""Questions to the store: the query language (`kql`), saved queries (`library`, read by `saved`) and reports.

It reads the store and what the correlator concluded; nothing here writes either.
"""
