"""Knows how events, runs and measurements are read from stored rows. Must not conclude anything from them."""
