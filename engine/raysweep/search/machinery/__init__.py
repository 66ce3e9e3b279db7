"""Parts that several searchers share."""
