"""The words of a command line: what each kind of field takes, in both forms, and what it refuses."""

from dataclasses import dataclass
from typing import Literal

import pytest

from cli.options import options_from_json, parse_options


@dataclass(frozen=True)
class Component:
    rate: float = 0.5
    kind: Literal["some", "all"] = "some"

    def __post_init__(self):
        if self.rate == 13:
            raise ValueError("rate must not be 13")


@dataclass(frozen=True)
class Whole:
    part: Component
    count: int = 1
    flag: bool = False
    other: bool = True
    text: str = ""
    prompt: str | None = None
    width: int | None = None

    def __post_init__(self):
        if self.count == 13:
            raise ValueError("count must not be 13")


def parse(*words: str) -> Whole:
    return parse_options(list(words), Whole(Component()), "program", "doc")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("count", "-3", -3),
        ("part.rate", "-1e-4", -1e-4),
        ("part.rate", "1E3", 1000.0),
        ("part.rate", "2", 2.0),
        ("part.kind", "all", "all"),
        ("text", "", ""),
        ("text", "a=b c\n", "a=b c\n"),
        ("text", "-x", "-x"),
        ("text", "None", "None"),
        ("prompt", "None", "None"),
        ("prompt", "", ""),
        ("width", "None", None),
        ("width", "4", 4),
        ("flag", "TRUE", True),
        ("other", "false", False),
    ],
)
def test_a_value_is_the_next_word_or_follows_an_equals_sign(name, text, value):
    section, _, last = name.rpartition(".")
    for words in ([f"--{name}", text], [f"--{name}={text}"]):
        config = parse(*words)
        found = getattr(config.part if section else config, last)
        assert (found, type(found)) == (value, type(value))
        assert parse(*words, "--count", "7").count == 7


def test_a_yes_or_no_option_may_stand_alone():
    config = parse("--flag", "--text=--x", "--count", "2", "--count", "3")
    assert (config.flag, config.text, config.count) == (True, "--x", 3)
    assert parse() == Whole(Component())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--count", "x"], "--count must be a whole number, got 'x'"),
        (["--count=1.0"], "--count must be a whole number, got '1.0'"),
        (["--part.rate", "fast"], "--part.rate must be a number, got 'fast'"),
        (["--part.kind", "none"], "--part.kind must be one of 'some', 'all', got 'none'"),
        (["--flag", "maybe"], "--flag must be True or False, got 'maybe'"),
        (["--flag="], "--flag must be True or False, got ''"),
        (["--width", "none"], "--width must be a whole number or None, got 'none'"),
        (
            ["--prompt", "--flag"],
            "--prompt must be text or None, got nothing (what begins with -- is given as --prompt",
        ),
        (["--count", "13"], "--count must not be 13"),
        (["--part.rate", "13"], "--part.rate must not be 13"),
        (["--rate", "1"], "unknown option --rate; perhaps you meant --part.rate"),
        (["--"], "unknown option --; --help shows them all"),
        (["lines.txt"], "unknown word 'lines.txt': options are given as --option VALUE"),
        (["-count", "1"], "unknown word '-count': options are given as --option VALUE"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(words, message):
    with pytest.raises(ValueError) as error:
        parse(*words)
    assert str(error.value).startswith(message) and "\n" not in str(error.value)


def test_help_shows_every_option_with_its_default(capsys):
    for word in ("-h", "--help"):
        with pytest.raises(SystemExit) as error:
            parse("--count", "2", word)
        assert error.value.code == 0
        shown = capsys.readouterr().out
        assert "--part.rate FLOAT" in shown and "(default: 0.5)" in shown and shown.startswith("usage: program")


def test_json_gives_the_values_that_words_give():
    record = {"part": {"rate": 2, "kind": "all"}, "flag": True, "prompt": None, "width": 4, "text": "None"}
    words = ["--part.rate", "2", "--part.kind", "all", "--flag", "--width=4", "--text=None"]
    found = options_from_json(record, Whole(Component()))
    assert found == parse(*words) and type(found.part.rate) is float


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"part": {"ratio": 1.0}}, "unknown key part.ratio; perhaps you meant part.rate"),
        ({"rate": 1.0}, "unknown key rate; perhaps you meant part.rate"),
        ({"part": 3}, "part must be a section of options, got 3"),
        ({"count": {"a": 1}}, "count must be a whole number, got {'a': 1}"),
        ({"count": 1.0}, "count must be a whole number, got 1.0"),
        ({"count": True}, "count must be a whole number, got True"),
        ({"count": None}, "count must be a whole number, got None"),
        ({"flag": 1}, "flag must be True or False, got 1"),
        ({"width": "4"}, "width must be a whole number or None, got '4'"),
        ({"part": {"kind": "none"}}, "part.kind must be one of 'some', 'all', got 'none'"),
        ({"part": {"rate": 13}}, "part.rate must not be 13"),
    ],
)
def test_what_is_wrong_in_json_is_said_in_one_line(record, message):
    with pytest.raises(ValueError) as error:
        options_from_json(record, Whole(Component()))
    assert str(error.value) == message
