"""Heads, servers and whole nights on this machine, for `make` and the tests. Not part of the wheel."""
