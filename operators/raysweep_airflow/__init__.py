"""raysweep's Airflow provider: reserved, and empty in this version.

The package holds the import name and the version. It defines no hook, operator, trigger or provider entry
point yet, so installing it adds nothing to Airflow.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
