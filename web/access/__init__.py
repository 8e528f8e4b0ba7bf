"""Who looks at the pages, and what they may see. Without ``[access]`` in the configuration everyone may see everything."""
