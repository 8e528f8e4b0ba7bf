"""Knows which nodes were set DOWN, rebooted, panicked, dead, too hot, or had broken memory.

Must not decide which of these caused another, nor know edges.
"""
