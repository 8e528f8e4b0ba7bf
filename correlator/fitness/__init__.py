"""Knows whether a node is fit for a job: one answer for page, API, command, metric and gate."""
