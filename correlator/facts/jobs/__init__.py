"""Runs: how they ended (``run.*``: what the correlator must explain) and what their own output reports (``job.*``)."""
