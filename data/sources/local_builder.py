"""TFDS builders of a user's own files: array_record data, in the order of the file."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import tensorflow_datasets as tfds

from data.sources.local_corpus import Corpus


@dataclass
class LocalConfig(tfds.core.BuilderConfig):
    """A TFDS config whose name is the digest of the files."""

    corpus: Corpus | None = None
    """What the files hold; needed only where it has not been prepared yet."""


class _Local(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    VERSION = tfds.core.Version("1.0.0")
    NAMES: ClassVar[tuple[str, ...]]

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=__doc__,
            features=tfds.features.FeaturesDict({name: tfds.features.Text() for name in self.NAMES}),
            disable_shuffling=True,
            metadata=tfds.core.MetadataDict(),
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Iterator]:
        corpus = self.builder_config.corpus
        self.info.metadata.update(report=corpus.report)
        return {split: self._generate_examples(examples) for split, examples in corpus.splits.items()}

    def _generate_examples(self, examples) -> Iterator:
        for key, example in enumerate(examples):
            yield key, dict(zip(self.NAMES, (example,) if isinstance(example, str) else example, strict=True))


class LocalPairs(_Local):
    """Builder of pairs, from parallel text or a TSV file."""

    NAMES = ("source", "target")


class LocalText(_Local):
    """Builder of documents."""

    NAMES = ("text",)
