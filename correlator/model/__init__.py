"""Knows the nouns (events, facts, runs, edges), kinds of facts and moments. Must not know the store, a site, or any rule."""
