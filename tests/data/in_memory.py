"""Datasets of a few texts, written down in a test."""

from fractions import Fraction

import tensorflow_datasets as tfds

from data.loading import load_mixture
from data.prepare import prepare_builder


def load_from(builder, config, tokenizers_from=None):
    """`load` for one dataset that is prepared already."""
    return load_mixture([(builder, Fraction(1))], config, tokenizers_from)


def builder_of(directory, splits, names):
    """A TFDS dataset, prepared in `directory`, of split -> rows; a row is a text, or as many as there are `names`."""

    class Given(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = tfds.features.FeaturesDict({name: tfds.features.Text() for name in names})
            return tfds.core.DatasetInfo(builder=self, features=features, disable_shuffling=True)

        def _split_generators(self, dl_manager):
            return {split: self._generate_examples(rows) for split, rows in splits.items() if rows}

        def _generate_examples(self, rows):
            for key, row in enumerate(rows):
                yield key, dict(zip(names, [row] if isinstance(row, str) else row, strict=True))

    return prepare_builder(Given, str(directory))


def generate(directory, name, features, rows, supervised_keys=None, config=None, splits=("train", "validation")):
    """A prepared dataset `name`, as TFDS's own are: no code of it is known when it is read. Each split has all rows."""

    def info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(features),
            supervised_keys=supervised_keys,
            disable_shuffling=True,
        )

    contents = {
        "VERSION": tfds.core.Version("1.0.0"),
        "BUILDER_CONFIGS": [tfds.core.BuilderConfig(name=config)] if config else [],
        "_info": info,
        "_split_generators": lambda self, manager: {s: self._generate_examples() for s in splits},
        "_generate_examples": lambda self: enumerate(rows),
        "name": name,
    }

    class Base(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        pass

    builder_class = type(name, (Base,), contents | {"__module__": __name__}, skip_registration=True)
    builder_class(data_dir=str(directory), file_format="array_record").download_and_prepare()
