"""The grammar of --data.source."""

import pytest

from data.sources.grammar import Source, parse_source


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("dates", Source("builder", "dates")),
        ("tfds:lm1b", Source("tfds", "lm1b")),
        ("tfds:wmt14_translate/de-en", Source("tfds", "wmt14_translate/de-en")),
        ("tfds:wmt14_translate/de-en:1.0.0", Source("tfds", "wmt14_translate/de-en:1.0.0")),
        ("tfds:wmt14_translate/de-en:en-de", Source("tfds", "wmt14_translate/de-en", ("en", "de"))),
        ("tfds:wmt14_translate/de-en:1.0.0:en-de", Source("tfds", "wmt14_translate/de-en:1.0.0", ("en", "de"))),
        ("text:some where/input.txt", Source("text", "some where/input.txt")),
        ("text:odd:a-b", Source("text", "odd:a-b")),
        ("tsv:a-b/kor.txt", Source("tsv", "a-b/kor.txt")),
        ("tsv:kor.txt:2-1", Source("tsv", "kor.txt", ("2", "1"))),
        ("parallel:c:/multi30k:en-de", Source("parallel", "c:/multi30k", ("en", "de"))),
        ("parallel:multi30k:en-zh_Hant", Source("parallel", "multi30k", ("en", "zh_Hant"))),
    ],
)
def test_what_it_says(text, source):
    assert parse_source(text) == source
    assert str(source) == text


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("csv:a", "unknown kind of data 'csv' in 'csv:a': there are tfds:NAME[/CONFIG], text:PATH"),
        ("/a/b:c", "unknown kind of data '/a/b'"),
        ("tsv:", "'tsv:' names nothing after the colon"),
        ("parallel:x:en-en", "source and target are both en"),
        ("tsv:x:0-1", "columns are numbers from 1 on, as in tsv:x:2-1"),
        ("tsv:x:en-de", "columns are numbers from 1 on"),
    ],
)
def test_what_it_cannot_say(text, complaint):
    with pytest.raises(ValueError) as error:
        parse_source(text)
    assert complaint in str(error.value) and "\n" not in str(error.value)
