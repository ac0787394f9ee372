"""Files of a run: config, checkpoints, curves, data record, evaluations and result; written, and loaded again."""
