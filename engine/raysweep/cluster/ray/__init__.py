"""The calls to Ray: actors, placement groups, nodes, and the connection to a cluster."""
