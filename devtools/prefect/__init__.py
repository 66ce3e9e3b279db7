"""A local Prefect, and nights in it."""
