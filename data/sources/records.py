"""Read the texts of a prepared dataset: single examples, or all of a split at once."""

import bisect
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, overload

from data.sources.builders import damaged
from data.sources.memory import InMemoryDataset

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_CHUNK = 65_536


class Dataset(Protocol):
    """Protocol of a dataset that can be read: a TFDS `DatasetBuilder`, a `DatasetView` or an `InMemoryDataset`."""

    name: str
    info: Any
    """As `tfds.core.DatasetInfo`: features, splits with num_examples, metadata."""

    def as_data_source(self, split: str, **options: Any) -> Sequence: ...


@dataclass(frozen=True)
class DatasetView:
    """A prepared TFDS dataset under the user's name for it, with its text features named source and target, or text."""

    builder: "tfds.core.DatasetBuilder"
    name: str
    """The source in the user's words, as messages name it: tsv:PATH."""
    columns: Mapping[str, str]
    """Our name (source and target, or text) -> the feature's."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Split -> TFDS slice, for splits that are a part of another."""

    @property
    def data_path(self) -> Any:
        return self.builder.data_path

    @property
    def info(self) -> "DatasetViewInfo":
        return DatasetViewInfo(self.builder.info, self.columns, self.parts)

    def as_data_source(self, split: str, **options: Any) -> Sequence:
        return self.builder.as_data_source(self.parts.get(split, split), **options)


@dataclass(frozen=True)
class DatasetViewInfo:
    """The `info` of a `DatasetView`: the fields of `tfds.core.DatasetInfo` that reading needs."""

    info: "tfds.core.DatasetInfo"
    columns: Mapping[str, str]
    parts: Mapping[str, str]

    @property
    def features(self) -> dict[str, Any]:
        return {name: self.info.features[feature] for name, feature in self.columns.items()}

    @property
    def splits(self) -> Mapping[str, Any]:
        return dict(self.info.splits) | {split: self.info.splits[part] for split, part in self.parts.items()}

    @property
    def metadata(self) -> Any:
        return self.info.metadata


class Examples(Sequence):
    """The examples of a split in file order, each a dict of str; read from disk when asked for."""

    def __init__(self, dataset: Dataset, split: str) -> None:
        """Raises ValueError for a split that the dataset lacks."""
        check_split(dataset, split)
        self._dataset, self._source = dataset, _raw(dataset, split)

    def __len__(self) -> int:
        return len(self._source)

    @overload
    def __getitem__(self, index: int) -> dict[str, str]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, str]]: ...
    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[n] for n in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        names = tuple(self._dataset.info.features)
        (values,) = _texts(self._dataset, self._source, [index % len(self)], names)
        return dict(zip(names, values))


class ConcatExamples(Sequence):
    """The examples of several datasets, concatenated."""

    def __init__(self, parts: Sequence[Examples]) -> None:
        self._parts = parts
        self._ends = list(itertools.accumulate(map(len, parts)))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index):
        if isinstance(index, slice):
            return [self[n] for n in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        index %= len(self)
        part = bisect.bisect_right(self._ends, index)
        return self._parts[part][index - self._ends[part] + len(self._parts[part])]


def check_split(dataset: Dataset, split: str) -> None:
    """Raises ValueError unless the dataset has a split of this name with at least one example."""
    splits = dataset.info.splits
    if split not in splits:
        raise ValueError(f"{dataset.name} has no split {split!r}: there are {', '.join(splits)}")
    if not splits[split].num_examples:
        raise ValueError(f"split {split!r} of {dataset.name} has no examples")


def read_columns(dataset: Dataset, split: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Text features `names` of all examples of `split`, in file order: name -> texts.

    Raises ValueError as `check_split`, and for data on disk that are damaged or do not belong to this dataset.
    """
    check_split(dataset, split)
    source = _raw(dataset, split)
    columns: dict[str, list[str]] = {name: [] for name in names}
    for start in range(0, len(source), _CHUNK):
        rows = range(start, min(start + _CHUNK, len(source)))
        for values in _texts(dataset, source, list(rows), names):
            for column, value in zip(columns.values(), values):
                column.append(value)
    return columns


def _raw(dataset: Dataset, split: str) -> Sequence:
    """Return the records as they lie on disk: 11 µs an example, where TFDS's decoding takes 70.

    In memory, the examples.
    """
    if isinstance(dataset, InMemoryDataset):
        return dataset.examples[split]
    from tensorflow_datasets.core.decode import DeserializeMethod

    return dataset.as_data_source(split, deserialize_method=DeserializeMethod.RAW_BYTES)


def _texts(dataset: Dataset, source: Sequence, rows: list[int], names: Iterable[str]) -> Iterator[list[str]]:
    if isinstance(dataset, InMemoryDataset):
        yield from ([source[row][name] for name in names] for row in rows)
        return
    from google.protobuf.message import DecodeError
    from tensorflow_datasets.proto import tf_example_pb2

    columns = dataset.columns if isinstance(dataset, DatasetView) else {}
    features = [columns.get(name, name) for name in names]
    try:
        for record in source.__getitems__(rows):
            feature = tf_example_pb2.Example.FromString(record).features.feature
            yield [feature[name].bytes_list.value[0].decode() for name in features]
    except (RuntimeError, DecodeError, UnicodeDecodeError) as error:  # array_record's own checksums say RuntimeError
        raise damaged(dataset.data_path, error) from None
    except IndexError:
        raise damaged(dataset.data_path, f"its records lack {' or '.join(features)}") from None
