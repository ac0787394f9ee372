"""Preparation of data: from a data source to files on disk, made once and then reused.

    python -m data.prepare tfds:wmt14_translate/de-en      a dataset of TFDS; takes TensorFlow and a network, once
    python -m data.prepare parallel:corpus/multi30k:en-de  any other source; training would do it too
    python -m data.prepare dates=0.7,tsv:corpus/kor=0.3    each of a mixture

Several sources may be named, one behind the other, before the options.
"""

import importlib
import sys
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from cli.options import parse_options
from cli.suggestions import did_you_mean
from cli.terminal import exit_on_error, fail, run_script
from data.sources.builders import check_data, is_prepared, make_builder, prepare_builder
from data.sources.grammar import GRAMMAR, Source, parse_mixture, parse_source

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

    from data.sources.records import DatasetView

__all__ = ["BUILDERS", "prepare", "prepare_builder"]

BUILDERS = {
    "dates": "data.datasets.dates:Dates",
    "reverse": "data.datasets.reverse:Reverse",
    "stdlib": "data.datasets.stdlib:Stdlib",
}
"""Name -> module and class of a TFDS builder, imported when it is asked for."""


@dataclass(frozen=True)
class PrepareOptions:
    """Options of `python -m data.prepare`, after the sources."""

    directory: str = ""
    """Where to keep the data, as data.directory; empty: $TFDS_DATA_DIR, or else ~/tensorflow_datasets."""


def prepare(source: str, directory: str = "") -> "tfds.core.DatasetBuilder | DatasetView":
    """Return the TFDS builder of `source` (`data.sources.grammar` has the grammar), its array_record files ready.

    `directory` is where TFDS keeps data; empty means TFDS's own choice ($TFDS_DATA_DIR, or ~/tensorflow_datasets).
    What has been prepared there before is reused; files of the user's by a digest of their content. Raises ValueError,
    one line, for an unknown name, for files that cannot be used, and for a TFDS dataset that is not prepared.
    """
    parsed = parse_source(source)
    if parsed.kind == "tfds":
        from data.sources.tfds_datasets import open_tfds

        return open_tfds(parsed, directory)
    if parsed.kind != "builder":
        return _prepare_local(parsed, directory)
    if source not in BUILDERS:
        known = f"there are {', '.join(sorted(BUILDERS))}, {GRAMMAR}"
        raise ValueError(f"unknown dataset {source!r}: {known}{did_you_mean(source, BUILDERS)}")
    module, name = BUILDERS[source].split(":")
    builder_class = getattr(importlib.import_module(module), name)
    return prepare_builder(builder_class, directory)


def _prepare_local(source: Source, directory: str) -> "DatasetView":
    from data.sources.local_corpus import LocalSource

    local = LocalSource.find(source)
    digest = local.digest()
    from data.sources.local_builder import LocalConfig, LocalPairs, LocalText
    from data.sources.records import DatasetView

    builder_class = LocalText if source.kind == "text" else LocalPairs
    builder = make_builder(builder_class, directory, LocalConfig(name=digest))
    # Read in full before TFDS makes its first directory: files that cannot be used leave no trace.
    if not is_prepared(builder):
        prepare_builder(builder_class, directory, LocalConfig(name=digest, corpus=local.read(digest)), str(source))
        builder = make_builder(builder_class, directory, LocalConfig(name=digest))  # without the corpus in memory
    else:
        check_data(builder)
        if report := builder.info.metadata.get("report"):
            print(f"{source}: {report}")
    return DatasetView(builder, str(source), {name: name for name in builder_class.NAMES})


def main() -> None:
    """Prepare the sources that the command line names."""
    program, words = "python -m data.prepare", sys.argv[1:]
    texts = list(takewhile(lambda word: not word.startswith("-"), words))
    try:
        options = parse_options(words[len(texts) :], PrepareOptions(), f"{program} SOURCE ...", __doc__)
        if not texts:
            raise ValueError(f"wanted a source first: dates, reverse, stdlib, {GRAMMAR}; --help shows more")
        sources = [parse_source(name) for text in texts for name, _ in parse_mixture(text)]
    except ValueError as error:
        fail(program, error)
    with exit_on_error(program):
        for source in sources:
            if source.kind == "tfds":
                from data.sources.tfds_datasets import prepare_tfds

                builder = prepare_tfds(source, options.directory)
            else:
                builder = prepare(str(source), options.directory)
            print(f"{source} is in {builder.data_path}")


if __name__ == "__main__":
    run_script(main)
