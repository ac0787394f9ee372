"""A trained model in use: translate lines, continue text."""
