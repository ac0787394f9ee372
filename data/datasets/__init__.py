"""TFDS builders that generate their data locally, without a download."""
