"""Tokenizers: characters, bytes, byte-level BPE, pretokenized words."""
