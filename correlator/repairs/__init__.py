"""Knows which devices are worth a repair, and what to do about each."""
