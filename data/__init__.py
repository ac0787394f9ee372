"""Data: datasets, tokenizers, and batches in a reproducible order."""
