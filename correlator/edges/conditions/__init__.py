"""Knows what an edge may require of a cause and an effect. Must not know which edges require it, nor weigh anything."""
