"""Stored sweeps as tables, Optuna studies and MLflow runs. Needs no Ray."""
