"""Output of attempts: captured in files, stored by one process for each node."""
