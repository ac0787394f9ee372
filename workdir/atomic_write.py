"""Files that are written whole or not at all."""

import os
from pathlib import Path


def write_atomically(path: Path, content: str | bytes, *, overwrite: bool = True) -> bool:
    """Write a temporary file beside `path`, then rename it; return whether `path` now has this content.

    A reader of `path` finds the old file or the new one, also if this process is killed. Text becomes UTF-8.

    Args:
        overwrite: False: a file that is there already stays, and the answer is False; of several processes that write
            at the same time, one gets True.

    Raises:
        OSError: it could not be written; an older file is as it was.
        ValueError: text that UTF-8 cannot encode.
    """
    content = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        if not overwrite:
            try:
                os.link(temporary, path)  # unlike a rename, fails if `path` exists
                return True
            except FileExistsError:
                return False
            except OSError:  # a file system without hard links
                pass
        os.replace(temporary, path)
        return True
    finally:
        temporary.unlink(missing_ok=True)
