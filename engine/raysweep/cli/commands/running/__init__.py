"""Commands that run something, or continue it, and how they follow it."""
