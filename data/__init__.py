"""What a model learns from: datasets, tokenizers, and batches in a reproducible order."""
