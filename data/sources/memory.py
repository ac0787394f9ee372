"""Datasets in memory: examples that a program has, or makes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace


class InMemoryDataset:
    """Examples by split, with the attributes of a prepared TFDS dataset that loading asks for.

    Args:
      name: as messages and `data.json` name it.
      splits: split -> examples, dicts of str that all have the same keys; read once, in their order.

    Raises:
      TypeError: an example that is no dict of str.
      ValueError: an example with other keys than the first; no examples at all. Names the split and the example.
    """

    def __init__(self, name: str, splits: Mapping[str, Iterable[Mapping[str, str]]]) -> None:
        self.name, self.data_path = name, name
        self.examples = {split: [dict(example) for example in rows] for split, rows in splits.items()}
        keys = next((example.keys() for rows in self.examples.values() for example in rows), None)
        if keys is None:
            raise ValueError(f"{name} has no examples")
        for split, rows in self.examples.items():
            for number, example in enumerate(rows):
                where = f"example {number} of {name}, split {split},"
                if example.keys() != keys:
                    raise ValueError(f"{where} has keys {', '.join(example)}; the first one has {', '.join(keys)}")
                for key, text in example.items():
                    if not isinstance(text, str):
                        raise TypeError(f"{where} must have a str as its {key}, got {type(text).__name__}")
        counts = {split: SimpleNamespace(num_examples=len(rows)) for split, rows in self.examples.items()}
        self.info = SimpleNamespace(features=dict.fromkeys(keys), splits=counts, metadata=None)
