"""A local Airflow, and nights in it."""
