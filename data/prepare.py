"""From the name of a dataset to its data on disk, prepared once and then reused."""

import contextlib
import difflib
import importlib
import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import absl.logging

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

BUILDERS = {
    "dates": "data.datasets.dates:Dates",
    "reverse": "data.datasets.reverse:Reverse",
    "stdlib": "data.datasets.stdlib:Stdlib",
}
"""Name -> module and class of a TFDS builder, imported when it is asked for."""


def prepare(source: str, directory: str = "") -> "tfds.core.DatasetBuilder":
    """The TFDS builder of dataset `source`, its array_record files ready to be read.

    `directory` is where TFDS keeps data; empty means TFDS's own choice ($TFDS_DATA_DIR, or ~/tensorflow_datasets).
    What has been prepared there before is reused. Raises ValueError for an unknown name.
    """
    if source not in BUILDERS:
        near = difflib.get_close_matches(source, BUILDERS, n=1)
        hint = f"; perhaps you meant {near[0]}?" if near else ""
        raise ValueError(f"unknown dataset {source!r}: there are {', '.join(sorted(BUILDERS))}{hint}")
    module, name = BUILDERS[source].split(":")
    builder_class = getattr(importlib.import_module(module), name)
    return prepare_builder(builder_class, directory)


def prepare_builder(
    builder_class: "type[tfds.core.DatasetBuilder]",
    directory: str = "",
    config: "tfds.core.BuilderConfig | None" = None,
) -> "tfds.core.DatasetBuilder":
    """A builder of this class and config with its data on disk; prints one line if it has to generate them."""
    import tensorflow_datasets as tfds

    def make() -> tfds.core.DatasetBuilder:
        data_dir = str(Path(directory).expanduser()) if directory else None
        return builder_class(data_dir=data_dir, config=config, file_format="array_record")

    with _quiet():
        builder = make()
        if builder.is_prepared():
            return builder
        start = time.perf_counter()
        tfds.disable_progress_bar()
        try:
            builder.download_and_prepare()
        except OSError:
            # A finished directory is renamed into place. Where another process was faster, its data are as good.
            if not make().is_prepared():
                raise
            return make()
    counts = ", ".join(f"{split.num_examples:,} {name}" for name, split in builder.info.splits.items())
    report = (builder.info.metadata or {}).get("report")
    print(
        f"prepared {builder.info.full_name} in {time.perf_counter() - start:.1f} s: {counts} examples"
        + (f" ({report})" if report else ""),
        flush=True,
    )
    return builder


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without TFDS's own messages: that a folder it is about to make is not there yet, where it will be, and so on."""
    level = absl.logging.get_verbosity()
    absl.logging.set_verbosity(absl.logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        absl.logging.set_verbosity(level)
