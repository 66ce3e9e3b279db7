"""Numerical helpers without state: means that round once, and the Pareto front."""
