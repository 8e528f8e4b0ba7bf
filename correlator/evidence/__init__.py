"""Knows how strongly facts support a cause: windows, base rates, exposure, calibration. Must not know verdicts."""
