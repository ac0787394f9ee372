"""TFDS datasets: read those that are prepared; prepare them, which takes TensorFlow and a network."""

import importlib.util
import socket
import threading
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cli.suggestions import did_you_mean
from data.home import data_directory
from data.sources.builders import check_data, damaged, quiet, sigterm_as_exit
from data.sources.grammar import Source
from data.sources.records import DatasetView

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

HOST = ("storage.googleapis.com", 443)
"""Where TFDS itself looks first, whatever it prepares."""
PATIENCE = 3.0
"""Seconds to wait for that host; TFDS itself retries for 205."""
HELD_OUT = 0.01
"""Share of the training split that validates where a dataset has no validation split (lm1b: as much as its test)."""


def open_tfds(source: Source, directory: str = "") -> DatasetView:
    """Open the prepared TFDS dataset that `source` names, its text features called source and target, or text.

    Raises ValueError, one line: not a possible name, not prepared (with the command that does it), damaged, not in
    array_record format, or without text features that can be told apart.
    """
    builder = _find(source.name, directory)
    if builder is None:
        raise ValueError(f"{source} is not prepared in {data_directory(directory)}: run {_command(source, directory)}")
    file_format = builder.info.file_format
    if file_format is None or file_format.value != "array_record":
        name = file_format.value if file_format else "an unknown format"
        raise ValueError(
            f"{builder.data_path} is in {name}, which takes TensorFlow to read; wanted is array_record: choose another "
            f"--data.directory and run python -m data.prepare tfds:{source.name} for it"
        )
    check_data(builder)
    return DatasetView(builder, str(source), _columns(builder, source), _held_out(builder, source))


def prepare_tfds(source: Source, directory: str = "") -> DatasetView:
    """Open a TFDS dataset as `open_tfds`, generating the data first where they are not there.

    Raises ValueError, in one line, where TensorFlow or the network is missing (within 5 seconds), and for a name that
    TFDS does not know.
    """
    if _find(source.name, directory) is None:
        check_means(source, directory)
        check_name(source)
        _generate(source, directory)
    return open_tfds(source, directory)


def check_means(source: Source, directory: str = "") -> None:
    """Raises ValueError unless TensorFlow is installed and the network answers; says what to type."""
    missing = []
    if importlib.util.find_spec("tensorflow") is None:
        missing.append("TensorFlow, which is not installed (pip install -e '.[tf]')")
    if not can_connect():
        missing.append(f"a network, but {HOST[0]} cannot be reached (connect, or copy prepared data here)")
    if missing:
        raise ValueError(f"preparing {source} takes {' and '.join(missing)}; then run {_command(source, directory)}")


def check_name(source: Source) -> None:
    """Raises ValueError for a dataset that TFDS has no code for; names the near ones.

    Only where TensorFlow is installed: without it TFDS itself does not know all of its datasets.
    """
    import tensorflow_datasets as tfds

    name = source.name.partition("/")[0].partition(":")[0]
    known = tfds.list_builders(with_community_datasets=False)
    if name not in known:
        raise ValueError(f"TFDS has no dataset {name!r}{did_you_mean(name, known)}")


def can_connect() -> bool:
    """Return whether `HOST`, or the proxy on the way to it, takes a connection within `PATIENCE` seconds."""
    proxy = urllib.request.getproxies().get("https")
    parts = urlsplit(proxy if not proxy or "//" in proxy else f"//{proxy}") if proxy else None
    address = (parts.hostname, parts.port or 80) if parts and parts.hostname else HOST
    answered = threading.Event()

    def connect() -> None:
        try:
            socket.create_connection(address, timeout=PATIENCE).close()
        except OSError:
            return
        answered.set()

    # In a thread, since looking up a name knows no time limit.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return answered.is_set()


def _generate(source: Source, directory: str) -> None:
    import tensorflow
    import tensorflow_datasets as tfds

    tensorflow.config.set_visible_devices([], "GPU")  # else it takes all of the GPU's memory
    start = time.perf_counter()
    builder = tfds.builder(source.name, data_dir=data_directory(directory), file_format="array_record")
    with sigterm_as_exit():
        builder.download_and_prepare()
    counts = ", ".join(f"{split.num_examples:,} {name}" for name, split in builder.info.splits.items())
    print(f"prepared {source} in {time.perf_counter() - start:.1f} s: {counts} examples", flush=True)


def _find(name: str, directory: str) -> "tfds.core.DatasetBuilder | None":
    from tensorflow_datasets.core import naming, read_only_builder, registered

    try:
        naming.parse_builder_name_kwargs(name)
    except ValueError:
        raise ValueError(f"tfds:{name} is not of the form tfds:NAME[/CONFIG][:VERSION]") from None
    try:
        with quiet():
            return read_only_builder.builder_from_files(name, data_dir=data_directory(directory))
    except registered.DatasetNotFoundError:
        return None
    except Exception as error:  # what a damaged description raises is of no common kind
        raise damaged(Path(data_directory(directory), name), error) from None


def _command(source: Source, directory: str) -> str:
    """Return the command to type."""
    return f"python -m data.prepare tfds:{source.name}" + (f" --directory {directory}" if directory else "")


def _held_out(builder: "tfds.core.DatasetBuilder", source: Source) -> dict[str, str]:
    """Cut a validation split from the end of the training split if there is none; never use the test split for it."""
    splits = builder.info.splits
    examples = splits["train"].num_examples if "train" in splits else 0
    if "validation" in splits or examples < 2:
        return {}
    count = max(1, round(HELD_OUT * examples))
    print(f"{source}: has no validation split; the last {count:,} of {examples:,} training examples are taken for it")
    return {"train": f"train[:-{count}]", "validation": f"train[-{count}:]"}


def _columns(builder: "tfds.core.DatasetBuilder", source: Source) -> Mapping[str, str]:
    """Map our names to the text features: as the source says, as they are called, or by TFDS's supervised keys."""
    import tensorflow_datasets as tfds

    features = builder.info.features
    texts = sorted(name for name, feature in features.items() if isinstance(feature, tfds.features.Text))
    pair = source.direction or builder.info.supervised_keys or ()
    if source.direction is None and {"source", "target"} <= set(texts):
        pair = ("source", "target")
    # Of a text that is its own target (lm1b) the supervised keys are no pair.
    if len(set(pair)) == 2 and set(pair) <= set(texts):
        return {"source": pair[0], "target": pair[1]}
    if source.direction is None and ("text" in texts or len(texts) == 1):
        return {"text": "text" if "text" in texts else texts[0]}
    raise ValueError(
        f"{source}: its text features are {', '.join(texts) or 'none'} (of {', '.join(sorted(features))}); "
        f"wanted is a choice of two, as in tfds:{source.name}:en-de, or one called text"
    )
