"""What a run keeps on disk, and how it is opened again."""
