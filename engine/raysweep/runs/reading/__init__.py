"""Reading a run from its storage alone: status, history, logs, checkpoints."""
