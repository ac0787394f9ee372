"""TFDS builders with their data on disk: generated once, checked each time, never silently replaced."""

import contextlib
import io
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import absl.logging

from data.home import data_directory

if TYPE_CHECKING:
    import tensorflow_datasets as tfds


def prepare_builder(
    builder_class: "type[tfds.core.DatasetBuilder]",
    directory: str = "",
    config: "tfds.core.BuilderConfig | None" = None,
    name: str = "",
) -> "tfds.core.DatasetBuilder":
    """Return a builder of this class and config with its data on disk; prints one line if it has to generate them.

    The line calls it `name`, or by its own full name. Raises ValueError where the place of the data cannot be written,
    or is taken by something else, or by damaged data.
    """
    import tensorflow_datasets as tfds

    with quiet():
        builder = make_builder(builder_class, directory, config)
        if builder.is_prepared():
            check_data(builder)
            return builder
        start = time.perf_counter()
        tfds.disable_progress_bar()
        try:
            with sigterm_as_exit():
                builder.download_and_prepare()
        except OSError as error:
            # A finished directory is renamed into place. Where another process was faster, its data are as good.
            if not make_builder(builder_class, directory, config).is_prepared():
                raise ValueError(
                    f"cannot prepare data in {builder.data_path}: {error.strerror or error}; choose another place with "
                    "--data.directory (python -m data.prepare: --directory) or $TFDS_DATA_DIR"
                ) from error
            return make_builder(builder_class, directory, config)
    counts = ", ".join(f"{split.num_examples:,} {name}" for name, split in builder.info.splits.items())
    report = (builder.info.metadata or {}).get("report")
    print(
        f"prepared {name or builder.info.full_name} in {time.perf_counter() - start:.1f} s: {counts} examples"
        + (f" ({report})" if report else ""),
        flush=True,
    )
    return builder


def make_builder(
    builder_class: "type[tfds.core.DatasetBuilder]",
    directory: str = "",
    config: "tfds.core.BuilderConfig | None" = None,
) -> "tfds.core.DatasetBuilder":
    """Make the builder, which reads its directory if there is one.

    Raises ValueError if that does not hold a dataset, and as `data_directory`.
    """
    data_dir = data_directory(directory)
    try:
        with quiet():
            builder = builder_class(data_dir=data_dir, config=config, file_format="array_record")
    except Exception as error:  # protobuf's errors are of no common kind
        path = Path(data_dir) / builder_class.name / (config.name if config else "")
        raise damaged(path, error) from None
    if not is_prepared(builder) and Path(builder.data_path).exists():
        raise ValueError(
            f"{builder.data_path} exists and is not a dataset that TFDS prepared: move it away, or choose another "
            "--data.directory"
        )
    return builder


def is_prepared(builder: "tfds.core.DatasetBuilder") -> bool:
    """Return whether the builder's data are on disk."""
    with quiet():
        return builder.is_prepared()


def check_data(builder: "tfds.core.DatasetBuilder") -> None:
    """Raises ValueError unless all data files of a prepared dataset are there, readable, and as long as promised."""
    from array_record.python.array_record_module import ArrayRecordReader

    for split in builder.info.splits.values():
        for path, length in zip(split.filepaths, split.shard_lengths):
            try:
                reader = ArrayRecordReader(str(path))
                found = reader.num_records()
                reader.close()
            except RuntimeError as error:
                raise damaged(builder.data_path, error) from None
            if found != length:
                raise damaged(builder.data_path, f"{Path(path).name} has {found:,} records, not {length:,}")


def damaged(path: object, why: object) -> ValueError:
    """Return the error for prepared data under `path` that cannot be read."""
    return ValueError(f"the prepared data in {path} are damaged ({_one_line(why)}): remove them to prepare them again")


@contextlib.contextmanager
def sigterm_as_exit() -> Iterator[None]:
    """Lets SIGTERM, and SIGHUP unless it is ignored, end the program by an exception, so that TFDS takes away what it
    has half written."""
    if threading.current_thread() is not threading.main_thread():  # only that one may say what a signal does
        yield
        return
    before = {}
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # not every system has a SIGHUP
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            before[number] = signal.signal(number, _exit)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, frame: object) -> None:
    if signal.Signals(number).name == "SIGHUP":  # a terminal that closes sends several
        signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence TFDS's own messages: that a folder it is about to make is not there yet, where it will be, and so on."""
    level = absl.logging.get_verbosity()
    absl.logging.set_verbosity(absl.logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        absl.logging.set_verbosity(level)


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:200]
