"""Knows how far each clock was off, in which time zone timestamps were written, and the true time. Must not know causes.

Others correct times only with what ``clocks.clocks`` exports. Detectors mark the facts whose times were moved: their
attributes are declared with the kind, above this room.
"""
