"""Objects of Ray Tune read as specs. Imports nothing of Ray."""
