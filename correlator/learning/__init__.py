"""Knows what operators answered and what follows for priors and base rates. Must not change a verdict by itself."""
