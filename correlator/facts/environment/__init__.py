"""Knows what a node gives to all programs on it, and what several users' failures there show about it.

Must not know why the node lacks it, nor decide which run it ended.
"""
