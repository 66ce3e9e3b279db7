"""Stores of objects: a local folder, S3, Google Cloud Storage, Azure, memory; retries and identity."""
