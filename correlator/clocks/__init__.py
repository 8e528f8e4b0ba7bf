"""Knows by how much each clock was off, and in which zone stamps were written. Must not know causes."""
