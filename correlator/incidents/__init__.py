"""Knows which verdicts belong to one incident, what recurs, and how both become sentences and documents.

Must not change a verdict, nor know how a tick works.
"""
