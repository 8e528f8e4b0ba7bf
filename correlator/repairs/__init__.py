"""Knows which devices are worth a repair, and what to do about each. Must not make incidents, nor know how a tick works."""
