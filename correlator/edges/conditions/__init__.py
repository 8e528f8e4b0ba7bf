"""Knows what an edge may require of a cause and an effect: one function a condition."""
