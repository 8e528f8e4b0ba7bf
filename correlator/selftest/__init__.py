"""Knows how edges are tested: cases written beside them, put together as situations and judged.

Must not know a site's store, nor how a tick works.
"""
