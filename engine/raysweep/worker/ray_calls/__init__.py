"""Calls of Ray Tune and Ray Train in a trial, answered by raysweep."""
