"""Sweeps that share a cluster: how slots are divided, and the register in which sweeps say what they want."""
