"""Knows how one site is built and configured. Must not know what happened there.

It covers hosts, switches, cables and timeouts, and the windows that follow from them.
"""
