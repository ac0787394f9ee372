"""Command lines and messages: words and JSON to typed options, one line for each error."""
