"""Numbers of a trained model: the field's metrics, and the evaluation of a split."""
