"""Data sources: the grammar of `--data.source`, users' files, TFDS datasets, examples in memory."""
