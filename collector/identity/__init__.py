"""Which cluster, node and boot a row belongs to: decided on arrival, and again when something is learned later.

``entry`` reads it from a line and its transport, ``hosts`` knows nodes' other names, ``clusters`` the cluster's,
``cluster_aliases`` decides whether accounting's name and the configuration's mean one cluster, ``boots`` when machines booted.
``identity`` holds what a running service has learned; nothing else writes it. Knows neither events nor causes.
"""
