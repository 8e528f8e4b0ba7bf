"""Pages and the JSON API over a store, and who may see what. Must not conclude anything by itself."""
