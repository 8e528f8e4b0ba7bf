"""Knows how edges are tested: cases written beside them, put together as situations and judged."""
