"""Gangs: the ranks of one trial, their sessions and their process groups."""
