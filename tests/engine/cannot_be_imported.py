"""A module that fails when it is imported."""

raise RuntimeError("not today")
