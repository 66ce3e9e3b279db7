"""Checkpoints: content-addressed objects and manifests."""
