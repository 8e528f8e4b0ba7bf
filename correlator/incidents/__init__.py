"""Knows which verdicts belong to one incident, what recurs, and how both become sentences and documents."""
