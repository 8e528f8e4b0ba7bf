"""Knows which cause a run's end is laid to, and how surely. Must not know incidents, nor how they are told."""
