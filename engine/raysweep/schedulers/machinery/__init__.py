"""What several schedulers share."""
