"""Trainables and specs that the guides, flows, DAGs, tests and benchmarks share."""
