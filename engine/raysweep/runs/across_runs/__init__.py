"""Uses of other runs of its name by a run: champions, warm starts, the budget of checkpoints."""
