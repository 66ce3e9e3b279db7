"""Readers of a program's metrics: one file for each source, behind the protocol in `base`."""
