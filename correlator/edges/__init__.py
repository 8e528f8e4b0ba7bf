"""Knows which kind of fact may cause which: edges as data (``*.toml``), their scopes and conditions. Must not weigh them."""
