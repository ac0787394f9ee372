"""Dates as people write them in every language that CLDR localises, and the same dates in ISO 8601."""

import datetime
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import babel
import numpy as np
import tensorflow_datasets as tfds

from data.datasets.date_forms import FORMS, ambiguous_days, languages, strangeness, templates, write
from data.seeds import check_seed

STRANGE = 4
"""How many training examples a language with quite strange month names has for each of one with well-known ones."""
_SPLITS = {"train": 0.9, "validation": 0.05, "test": 0.05}


@dataclass
class DatesConfig(tfds.core.BuilderConfig):
    languages: tuple[str, ...] = ()
    """CLDR language codes; empty: all that are localised."""
    train_examples: int = 600
    """Training examples of a language, on average. Those whose months are strange to the others have more."""
    validation_examples: int = 20
    """Validation examples of each language."""
    test_examples: int = 40
    """Test examples of each language."""
    first_year: int = 1900
    last_year: int = 2100
    seed: int = 0
    """Decides which days are held out, and which days and forms are drawn."""

    def __post_init__(self) -> None:
        check_seed(self.seed)


class Dates(tfds.core.GeneratorBasedBuilder):
    """`2026년 11월 30일 월요일` -> `2026-11-30`, in about 300 languages, generated from Babel's CLDR data.

    Calendar days, not examples, are split: no day of validation and test occurs in training, in any language. A string
    that is the text of two days (in any language and form, of any day in all the years) is left out. Within a language
    no day occurs twice, the forms take turns, and languages take turns in the files: any stretch of them is balanced.
    All languages have the same number of held-out examples; in training those have more whose months no other helps
    to read (`train_sizes`), for of these each name has to be learned by itself.

    `builder.info.metadata` counts what was left out, over the whole space of language, form and day:
    `ambiguous` {split: n}, `combinations` {split: n}, `languages` n, `languages_left_out` {reason: [code]}.
    """

    VERSION = tfds.core.Version("1.1.0")
    # Another CLDR writes other dates: Babel's version is in the name, so that old data is not taken for new.
    BUILDER_CONFIGS: ClassVar = [DatesConfig(name=f"babel-{babel.__version__}")]

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=__doc__,
            features=tfds.features.FeaturesDict(
                {name: tfds.features.Text() for name in ("source", "target", "language", "form")}
            ),
            supervised_keys=("source", "target"),
            disable_shuffling=True,
            metadata=tfds.core.MetadataDict(),
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Iterator]:
        config = self.builder_config
        codes, left_out = (config.languages, {}) if config.languages else languages()
        days_of = split_days(config.first_year, config.last_year, config.seed)
        split_of = {day: split for split, days in days_of.items() for day in days}

        used = Counter(
            (template, month, weekday) for code in codes for (_, month, weekday), template in templates(code).items()
        )
        ambiguous = ambiguous_days(used, split_of)

        counts = Counter()
        for key, days in ambiguous.items():
            for day in days:
                counts[split_of[day]] += used[key]
        total = {split: len(days) * len(codes) * len(FORMS) for split, days in days_of.items()}
        self.info.metadata.update(
            ambiguous={split: counts[split] for split in days_of},
            combinations=total,
            languages=len(codes),
            languages_left_out={reason: list(names) for reason, names in left_out.items()},
            report=(
                f"{len(codes)} languages; left out: "
                + "".join(f"{len(names)} whose {reason}, " for reason, names in left_out.items())
                + f"{counts.total():,} of {sum(total.values()):,} strings, which two dates share"
            ),
        )
        sizes = {
            "train": train_sizes(codes, config.train_examples),
            "validation": dict.fromkeys(codes, config.validation_examples),
            "test": dict.fromkeys(codes, config.test_examples),
        }
        return {
            split: self._generate_examples(sizes[split], days, ambiguous, config.seed)
            for split, days in days_of.items()
        }

    def _generate_examples(self, sizes, days, ambiguous, seed) -> Iterator[tuple[int, dict[str, str]]]:
        drawn = [_draw(code, days, size, ambiguous, seed) for code, size in sizes.items()]
        turns = ((n / len(examples), example) for examples in drawn for n, example in enumerate(examples))
        yield from enumerate(example for _, example in sorted(turns, key=lambda turn: turn[0]))


def split_days(first_year: int, last_year: int, seed: int) -> dict[str, list[datetime.date]]:
    """Split all days of the years, those of validation and test drawn at random: split -> days in random order."""
    if not 1000 <= first_year <= last_year <= 9998:
        raise ValueError(f"years must lie between 1000 and 9998, not {first_year}-{last_year}")
    first = datetime.date(first_year, 1, 1)
    count = (datetime.date(last_year + 1, 1, 1) - first).days
    order = [first + datetime.timedelta(int(n)) for n in np.random.RandomState(seed).permutation(count)]
    bounds = [round(count * share) for share in np.cumsum([0.0, *_SPLITS.values()])]
    return {split: order[bounds[n] : bounds[n + 1]] for n, split in enumerate(_SPLITS)}


def train_sizes(codes: Sequence[str], mean: int) -> dict[str, int]:
    """Return each language's training examples: up to `STRANGE` times as many where its months are unlike others'."""
    weights = {code: 1 + (STRANGE - 1) * value for code, value in strangeness(codes).items()}
    scale = mean * len(codes) / sum(weights.values())
    return {code: round(scale * weight) for code, weight in weights.items()}


def _draw(code, days, size, ambiguous, seed) -> list[dict[str, str]]:
    """Draw `size` examples of one language, each of another day. Raises ValueError if there are too few days."""
    templates_of = templates(code)
    # RandomState is frozen by NumPy's policy, and crc32 differs by language but not by Python process.
    order = np.random.RandomState([seed, zlib.crc32(code.encode())]).permutation(len(days))
    examples: list[dict[str, str]] = []
    for n in order:
        if len(examples) == size:
            break
        day, form = days[n], FORMS[len(examples) % len(FORMS)]
        template = templates_of[form, day.month, day.weekday()]
        if day not in ambiguous.get((template, day.month, day.weekday()), ()):
            examples.append({"source": write(template, day), "target": day.isoformat(), "language": code, "form": form})
    if len(examples) < size:
        raise ValueError(f"{code} has only {len(examples)} unambiguous dates of the {size} wanted")
    return examples
