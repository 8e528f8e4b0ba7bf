"""The meaning of a line: framings, the catalogue of event patterns, documents, clocks, and who can have written a line.
Imports nothing of ours."""
