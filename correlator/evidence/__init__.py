"""Knows how strongly facts speak for a cause: windows, base rates, exposure, calibration. Must not know verdicts."""
