"""Knows which verdicts belong to one incident, what recurs, and how it is put into words and documents."""
