"""Knows what could be known when: an incident's rows one arrival after the other, and what another timeout would have changed. Must not write to a store."""
