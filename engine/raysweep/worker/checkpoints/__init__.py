"""Checkpoints of one attempt: copied, staged, uploaded, committed."""
