"""What one run takes from others of its name: champions, warm starts, the budget of checkpoints."""
