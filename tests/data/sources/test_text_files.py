"""Lines as `wc -l` counts them; what is not text, in one line."""

import gzip
import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.sources.text_files import file_digest, read_lines, read_text

AWKWARD = "a\u2028b\x0bc\x0cd\x85e\0f\u2029g\rh"
"""All that Python's own str.splitlines would cut, and NUL."""


def written(path, content: bytes):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\n\nb\n\n", ["a", "", "b", ""]),
        (b"\n", [""]),
        (b"a b\r\nc\r\n\r\n", ["a b", "c", ""]),
        (b"\xef\xbb\xbfa b\n\xef\xbb\xbfc\n", ["a b", "\ufeffc"]),
        (AWKWARD.encode() + b"\nz", [AWKWARD, "z"]),
        ("e\u0301 \u00e9".encode(), ["e\u0301 \u00e9"]),
    ],
)
def test_lines(tmp_path, name, content, lines):
    path = written(tmp_path / name, content)
    assert list(read_lines(path)) == lines
    text = content.decode("utf-8-sig").replace("\r\n", "\n")
    assert read_text(path) == text


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\n")), min_size=1))
def test_any_lines_come_back_and_are_as_many_as_wc_counts(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("lines") / "x"
    # A final CR belongs to CRLF, and a BOM at the start to no line.
    lines = [line.rstrip("\r").lstrip("\ufeff") for line in lines]
    if len(lines) == 1:
        lines[0] = lines[0].replace("\r", "")  # which would be a file whose lines end with CR
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    assert list(read_lines(path)) == lines
    assert len(lines) == path.read_bytes().count(b"\n")


def test_wc_itself(tmp_path):
    path = written(tmp_path / "x", f"{AWKWARD}\r\n\n{AWKWARD}\n".encode())
    counted = subprocess.run(["wc", "-l", path], capture_output=True, text=True, check=True).stdout
    assert len(list(read_lines(path))) == int(counted.split()[0]) == 3


@pytest.mark.parametrize("name", ["x.tsv", "x.tsv.gz"])
@pytest.mark.parametrize("content", [b"a\tb\rc\td\r", b"a\tb\rc\td\r\n", b"\xef\xbb\xbfa\rb"])
def test_lines_that_end_with_cr_are_refused_by_name(tmp_path, name, content):
    with pytest.raises(ValueError, match=r"x\.tsv\S* is one line with CR in it: its lines must end with LF"):
        list(read_lines(written(tmp_path / name, content)))
    assert list(read_lines(written(tmp_path / name, content + b"\nz")))[-1] == "z"  # a character of one line, then


@pytest.mark.parametrize("read", [read_text, lambda path: list(read_lines(path))])
@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("x.txt", b"a\r\nb\n\xffc\n", "x.txt, line 3: byte 0xff is not UTF-8 text"),
        ("x.txt", b"\xef\xbb\xbf\xc3\n", "x.txt, line 1: byte 0xc3 is not UTF-8 text"),
        ("x.txt", "\ud800".encode("utf-8", "surrogatepass"), "line 1: byte 0xed is not UTF-8"),
        ("x.txt", b"", "x.txt is empty"),
    ],
)
def test_what_is_not_text(tmp_path, read, name, content, complaint):
    path = written(tmp_path / name, content)
    with pytest.raises(ValueError) as error:
        read(path)
    assert complaint in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("read", [read_text, lambda path: list(read_lines(path))])
def test_damaged_gzip(tmp_path, read):
    path = tmp_path / "x.gz"
    for content in (b"plain text", gzip.compress(b"a\n" * 9999)[:-20]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"cannot read .*x.gz: damaged gzip file"):
            read(path)


@pytest.mark.parametrize("read", [read_text, lambda path: list(read_lines(path)), file_digest])
def test_files_that_cannot_be_read(tmp_path, read):
    with pytest.raises(ValueError, match=r"cannot read .*nowhere: No such file"):
        read(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"cannot read .*: Is a directory"):
        read(tmp_path)


@pytest.fixture
def unreadable(tmp_path):
    """A file without read permission, and no root to read it all the same."""
    path = written(tmp_path / "secret.txt", b"a\tb\n")
    path.chmod(0)
    was = os.geteuid()
    if was == 0:
        for parent in list(path.parents)[:-2]:
            parent.chmod(parent.stat().st_mode | 0o055)
        os.seteuid(65534)
    yield path
    os.seteuid(was)


@pytest.mark.parametrize("read", [read_text, lambda path: list(read_lines(path)), file_digest])
def test_no_permission(unreadable, read):
    with pytest.raises(ValueError, match=r"cannot read .*secret.txt: Permission denied"):
        read(unreadable)
