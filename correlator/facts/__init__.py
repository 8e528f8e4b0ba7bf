"""Knows what happened: detectors make facts of events, one subject a file. Must not know why it happened, nor edges."""
