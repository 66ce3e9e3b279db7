"""This machine as a placement: workers are forked processes, and nothing of Ray is imported."""
