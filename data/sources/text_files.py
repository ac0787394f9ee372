"""Reading of text files: lines as `wc -l` counts them, and one clear line for what is not text.

UTF-8, gzipped where the name ends in .gz. A line ends at LF only: U+2028, form feeds and NUL are characters like any
other. The CR of CRLF and a byte order mark at the start of a file belong to no line. A CR elsewhere is a character too;
but lines are not taken from a file that is a single one with a CR in it, since its lines then end with CR. A last line
counts without its newline too. No line at all is an error.
"""

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_BOM = b"\xef\xbb\xbf"


def read_lines(path: Path) -> Iterator[str]:
    """Read the lines of `path`, without their ends.

    Raises ValueError, one line that names the file, and the line number.
    """
    with _open(path) as file:
        number = 0
        for number, raw in enumerate(file, start=1):
            if number == 1:
                raw = raw.removeprefix(_BOM)
                if b"\r" in raw.rstrip(b"\r\n") and not file.peek(1):
                    raise ValueError(
                        f"{path} is one line with CR in it: its lines must end with LF or CRLF, not CR alone"
                    )
            if raw.endswith(b"\r\n"):
                raw = raw[:-2] + b"\n"
            try:
                yield raw.decode().removesuffix("\n")
            except UnicodeDecodeError as error:
                byte = raw[error.start]
                raise ValueError(f"{path}, line {number}: byte {byte:#04x} is not UTF-8 text") from None
        if not number:
            raise ValueError(f"{path} is empty")


def read_text(path: Path) -> str:
    """Read all of `path` as one text, every newline kept (CRLF as LF). Raises as `read_lines`."""
    with _open(path) as file:
        content = file.read().removeprefix(_BOM)
    if not content:
        raise ValueError(f"{path} is empty")
    try:
        return content.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {number}: byte {content[error.start]:#04x} is not UTF-8 text") from None


def file_digest(path: Path) -> str:
    """Return a digest of the file's bytes, as they lie on disk. Raises ValueError for a file that cannot be read."""
    with _errors(path), path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    with _errors(path), gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        yield file


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"cannot read {path}: damaged gzip file ({error})") from None
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror or error}") from None


def one_line(text: str) -> str:
    """Replace line breaks by spaces, so that a file has as many lines as there are texts."""
    return text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ")
