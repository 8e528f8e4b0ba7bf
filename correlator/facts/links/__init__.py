"""Knows the outages of NICs and switch ports, switches and planes that took many with them, links that corrupt data.

Must not know which run an outage hurt, nor edges.
"""
