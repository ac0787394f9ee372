"""Where examples come from: `--data.source`, files that users have, TFDS datasets."""
