"""Knows how the running service concludes tick by tick: what is new, what it can change, what was published before."""
