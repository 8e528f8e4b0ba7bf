"""Knows whether a node is fit for a job: one answer for page, API, command, metric and gate.

Must not judge why a run ended, nor know how a tick works: it reads what was stored.
"""
