"""Nodes: set DOWN, rebooted, panicked, dead, too hot, with broken memory."""
