"""Knows how far each clock was off, and in which time zone timestamps were written. Must not know causes."""
