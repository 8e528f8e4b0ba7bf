"""Links: outages of NICs and switch ports, switches and planes that took many with them, links that corrupt data."""
