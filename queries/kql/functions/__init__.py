"""Function tables, one engine per module: tables before methods."""
