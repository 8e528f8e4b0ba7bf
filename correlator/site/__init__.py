"""Knows how one site is built and set: hosts, switches, cables, timeouts, and windows that follow from them. Must not know what
happened there."""
