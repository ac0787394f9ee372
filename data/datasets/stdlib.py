"""The Python standard library's own source and documentation, as text for a language model."""

import platform
import sysconfig
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import ClassVar

import tensorflow_datasets as tfds

_LEFT_OUT_DIRECTORIES = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test"}
_SPLIT_OF_PERCENT = {**dict.fromkeys(range(90), "train"), **dict.fromkeys(range(90, 95), "validation")}


@dataclass
class StdlibConfig(tfds.core.BuilderConfig):
    root: str = ""
    """Directory whose .py files are taken; empty: the standard library, with its documentation."""


class Stdlib(tfds.core.GeneratorBasedBuilder):
    """The .py files of the standard library, tests left out, and the topics of `help()`, one document each.

    About 90% of the documents are for training, 5% each for validation and test, by a hash of their path.
    `builder.info.metadata` has `not_utf8`, the paths of the files left out because they do not decode.
    """

    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS: ClassVar = [StdlibConfig(name=f"python-{platform.python_version()}")]

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=__doc__,
            features=tfds.features.FeaturesDict({name: tfds.features.Text() for name in ("text", "path")}),
            disable_shuffling=True,
            metadata=tfds.core.MetadataDict(),
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Iterator]:
        root = self.builder_config.root
        documents, not_utf8 = read_sources(Path(root or sysconfig.get_path("stdlib")))
        if not root:
            documents |= read_topics()
        self.info.metadata.update(
            not_utf8=not_utf8,
            report=f"{sum(map(len, documents.values())):,} characters; {len(not_utf8)} files left out, not UTF-8",
        )
        splits: dict[str, dict[str, str]] = {"train": {}, "validation": {}, "test": {}}
        for path in sorted(documents):
            splits[split_of(path)][path] = documents[path]
        return {split: self._generate_examples(part) for split, part in splits.items()}

    def _generate_examples(self, documents: dict[str, str]) -> Iterator[tuple[int, dict[str, str]]]:
        for key, (path, text) in enumerate(documents.items()):
            yield key, {"text": text, "path": path}


def split_of(path: str) -> str:
    """Assign a document to a split by its path alone."""
    return _SPLIT_OF_PERCENT.get(zlib.crc32(path.encode()) % 100, "test")


def read_sources(root: Path) -> tuple[dict[str, str], list[str]]:
    """Read the .py files below `root`, path -> text, and list those that are not UTF-8.

    Left out: tests, installed packages, what belongs to this machine's build (`_sysconfigdata*`), and the topics, which
    `read_topics` gives as the text that they are.
    """
    documents, not_utf8 = {}, []
    for file in sorted(root.rglob("*.py")):
        path = file.relative_to(root)
        if _LEFT_OUT_DIRECTORIES & set(path.parts) or path.name.startswith("_sysconfigdata"):
            continue
        if path == PurePath("pydoc_data/topics.py"):
            continue
        try:
            documents[path.as_posix()] = file.read_bytes().decode().replace("\r\n", "\n")
        except UnicodeDecodeError:
            not_utf8.append(path.as_posix())
    return documents, not_utf8


def read_topics() -> dict[str, str]:
    """Read Python's reference documentation, as `help()` shows it: path -> text."""
    from pydoc_data.topics import topics

    return {f"pydoc_data/topics/{name}": text for name, text in topics.items()}
