"""Algorithms that need Optuna, PyTorch, SciPy, cmaes or NumPy; options import them in `make`."""
