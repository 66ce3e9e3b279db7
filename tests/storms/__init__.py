"""Storms: random sweeps on the real engine without Ray, with misbehaving trials, kills and broken storage."""
