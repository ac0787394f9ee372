"""Strings of digits and their reversal: the smallest thing an encoder-decoder Transformer can learn."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import tensorflow_datasets as tfds

from data.seeds import check_seed

MIN_LENGTH, MAX_LENGTH = 4, 12
"""Digits of a string. Shorter ones are so few that all splits could not have their own."""


@dataclass
class ReverseConfig(tfds.core.BuilderConfig):
    train_examples: int = 20_000
    validation_examples: int = 500
    test_examples: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)


class Reverse(tfds.core.GeneratorBasedBuilder):
    """`90210` -> `01209`. Lengths are uniform from 4 to 12, and no string occurs twice, in no split and no two."""

    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS: ClassVar = [ReverseConfig(name="digits")]

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=__doc__,
            features=tfds.features.FeaturesDict({name: tfds.features.Text() for name in ("source", "target")}),
            supervised_keys=("source", "target"),
            disable_shuffling=True,
            metadata=tfds.core.MetadataDict(),
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Iterator]:
        config = self.builder_config
        sizes = {
            "train": config.train_examples,
            "validation": config.validation_examples,
            "test": config.test_examples,
        }
        strings = iter(draw(sum(sizes.values()), config.seed))
        self.info.metadata.update(report=f"{MIN_LENGTH} to {MAX_LENGTH} digits")
        return {split: self._generate_examples([next(strings) for _ in range(size)]) for split, size in sizes.items()}

    def _generate_examples(self, strings: list[str]) -> Iterator[tuple[int, dict[str, str]]]:
        for key, string in enumerate(strings):
            yield key, {"source": string, "target": string[::-1]}


def draw(count: int, seed: int) -> list[str]:
    """Draw `count` distinct strings of digits in random order, their lengths as uniform as distinctness allows."""
    random = np.random.RandomState(seed)  # its streams are frozen by NumPy's policy
    strings: dict[str, None] = {}  # an ordered set
    while len(strings) < count:
        length = random.randint(MIN_LENGTH, MAX_LENGTH + 1)
        strings["".join(map(str, random.randint(0, 10, length)))] = None
    return list(strings)
