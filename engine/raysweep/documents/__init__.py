"""The base of all documents: models, validation, YAML and JSON, references to code, sizes, times."""
