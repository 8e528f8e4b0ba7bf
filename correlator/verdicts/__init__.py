"""Knows which cause ended a run, and with what confidence. Must not know incidents, nor how they are presented."""
