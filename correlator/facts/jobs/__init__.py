"""Knows how runs ended (``run.*``: what the correlator must explain) and what their own output reports (``job.*``).

Must not decide why a run ended, nor know edges.
"""
