"""TFDS builders that make their data on the spot, without a download."""
