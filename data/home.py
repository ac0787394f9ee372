"""Expand `~` in paths that users type; it never becomes a directory of that name."""

import os


def expand_home(path: str, option: str) -> str:
    """Replace `~` or `~NAME` at the start of `path` by that user's home directory.

    Raises ValueError, one line that names `option`, where there is no such directory: in a container, say, without
    $HOME and for a user whom the system does not know. The standard library would give `~` back as it is.
    """
    if not path.startswith("~"):
        return path
    user = path[1:].partition("/")[0]
    # An empty $HOME would make ~/data the directory /data.
    expanded = path if not user and os.environ.get("HOME") == "" else os.path.expanduser(path)
    if expanded.startswith("~"):
        whose = f"of {user}" if user else "(set $HOME)"
        raise ValueError(f"{option} {path}: there is no home directory {whose}; name a place without ~, or ./{path}")
    return expanded


def data_directory(directory: str = "") -> str:
    """Return the directory of prepared data: `directory`, else $TFDS_DATA_DIR, else ~/tensorflow_datasets, as of TFDS.

    Raises ValueError as `expand_home`.
    """
    if directory:
        return expand_home(directory, "--data.directory")
    if place := os.environ.get("TFDS_DATA_DIR"):
        return expand_home(place, "$TFDS_DATA_DIR")
    try:
        return expand_home("~/tensorflow_datasets", "")
    except ValueError:
        raise ValueError(
            "there is no home directory to keep prepared data in: name a place with --data.directory "
            "(python -m data.prepare: --directory) or $TFDS_DATA_DIR"
        ) from None
