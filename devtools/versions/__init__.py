"""Runs a sample of the tests on each version of Ray, Airflow, Prefect, Python, Optuna and PyTorch."""
