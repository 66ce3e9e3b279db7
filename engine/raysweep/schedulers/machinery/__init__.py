"""Parts that several schedulers share."""
