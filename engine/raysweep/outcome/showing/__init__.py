"""Outcomes as text and HTML, for people."""
