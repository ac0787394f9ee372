"""generate.py: as many lines out as in, in their order, and nothing dropped without a word."""

import json
import re
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

from data.tokenizers.base import BOS, REPLACEMENT, UNK
from generate import main
from inference.generation_config import DecodingOptions
from inference.translator import Translator
from tests.scripts import ROOT, in_a_process, in_this_process, with_nan_parameters
from workdir.digests import write_digests
from workdir.restore import load_run
from workdir.run_directory import RunDirectory


@pytest.fixture
def generate(monkeypatch):
    return lambda *words, **how: in_this_process(monkeypatch, main, *words, **how)


def lines(text: str) -> list[str]:
    assert text == "" or text.endswith("\n")
    return text.split("\n")[:-1]


def refused(done, code: int = 2) -> str:
    """The one line that says why."""
    assert (done.code, done.out) == (code, "") and done.err.count("\n") == 1, done
    return done.err


def test_special_tokens_are_not_written(spelling_run):
    """Of a model that would rather write BOS or the unknown token wherever it writes an A."""
    run = load_run(spelling_run)
    params = jax.device_get(run.select_params("last").params)
    kernel = np.array(params["unembedding"]["kernel"])
    a = run.tokenizers["target"].encode("A")[0]
    for special, written in ((BOS, "A B"), (UNK, REPLACEMENT)):
        changed = kernel.copy()
        changed[:, special] = 3 * changed[:, a]
        model = run.trained_model({**params, "unembedding": {"kernel": changed}})
        assert Translator(model).lines(["ab"])[0].startswith(written)
        assert Translator(model, DecodingOptions(beam=2)).lines(["ab"])[0].startswith(written)
        assert Translator(model, DecodingOptions(suppress_unknown=True)).lines(["ab"]) == ["A B"]
    assert DecodingOptions(suppress_unknown=True).name == "greedy-suppress_unknown"


@pytest.mark.slow  # 14 s
def test_outputs_that_are_not_numbers_end_in_one_line(generate, spelling_run, text_run, monkeypatch):
    with_nan_parameters(monkeypatch)
    for words in ([], ["--scores"], ["--sample"], ["--beam", 2], ["--beam", 2, "--nbest", 2]):
        done = generate(spelling_run, *words, stdin=b"\nab\nabc\n")
        assert (done.code, done.out) == (1, ""), words
        assert "line 2: the model's outputs are not numbers" in done.err.splitlines()[-1], words
    for words in ([], ["--sample"]):
        typed = generate(text_run, *words, stdin=b"the cat\n", terminal=True)
        assert typed.code == 1 and "line 1: the model's outputs are not numbers" in typed.err.splitlines()[-1]


def test_a_line_in_is_a_line_out(spelling_run):
    """Blank, much too long, unknown characters, CRLF, no newline at the end; a real process, only results on stdout."""
    text = "ab\n\nabc\n" + "abc" * 3000 + "\nx☃\n \ncba\r\nbb"
    done = in_a_process("generate.py", spelling_run, stdin=text.encode())
    assert done.code == 0, done.err
    out = lines(done.out)
    assert len(out) == 8 and out[1] == out[5] == ""
    assert [out[0], out[2], out[6]] == ["A B", "A B C", "C B A"]
    assert all(out[number] for number in (3, 4, 7))
    assert f"{spelling_run} (reverse): step 150, the last" in done.err
    assert "2 of 8 lines are blank" in done.err
    assert "cut to the 3 tokens that the model reads at most: line 4\n" in done.err
    assert "2 tokens that the training data lack, in line 5: 'x', '☃'" in done.err


def test_odd_characters_neither_make_nor_lose_a_line(generate, spelling_run):
    """A byte order mark, CRLF, line separators of Unicode, a form feed, CR and NUL within lines: LF alone ends one."""
    text = "\ufeffab\r\nabc\u2028\n\u0085abc\nab\x00\nab\rc\n\x0c\n\u3000\nabc"
    done = generate(spelling_run, stdin=text.encode())
    assert done.code == 0 and done.out.count("\n") == 8 and "\r" not in done.out
    out = lines(done.out)
    assert (out[0], out[5], out[6], out[7]) == ("A B", "", "", "A B C")
    assert "4 tokens that the training data lack, in lines 2, 3, 4, 5: '\\x00', '\\r', '\\x85', '\\u2028'" in done.err


def test_line_breaks_in_an_output_are_spaces(generate, monkeypatch, spelling_run):
    """Whatever a model writes, a line stays a line; and it is said."""
    from data.tokenizers.characters import CharacterTokenizer

    monkeypatch.setattr(CharacterTokenizer, "decode", lambda self, ids: "x\ry\r\nz\n")
    done = generate(spelling_run, stdin=b"ab\n\nabc\n")
    assert done.out == "x y z \n\nx y z \n" and "written as spaces: lines 1, 3\n" in done.err


def test_an_unfinished_run_by_a_relative_path(generate, tmp_path, monkeypatch, spelling_run):
    copy = shutil.copytree(spelling_run, tmp_path / "runs" / "mine")
    (copy / "result.json").unlink()
    monkeypatch.chdir(tmp_path)
    assert generate("runs/mine/", stdin=b"abc").out == "A B C\n"


def test_a_source_without_tokens_has_an_empty_output(spelling_run):
    """Where lines are decoded in code, too; the blank one is not asked."""
    run = load_run(spelling_run)
    translator = Translator(run.trained_model(run.select_params("last").params))
    assert translator.lines(["", "ab", ""]) == ["", "A B", ""]
    (nothing,), (some,), _ = translator.hypotheses(translator.encode(["", "ab", ""]))
    assert nothing[:3] == ("", 0.0, True) and some.text == "A B"
    with pytest.raises(ValueError, match="line 2 has 4 tokens, the model reads at most 3: 'abca'"):
        translator.lines(["ab", "abca"])


def test_nothing_in_nothing_out(generate, spelling_run):
    for stdin, out in ((b"", ""), (b"\n", "\n"), (b"\n\n", "\n\n")):
        done = generate(spelling_run, stdin=stdin)
        assert (done.code, done.out) == (0, out)


def test_many_lines_keep_their_order(generate, spelling_run):
    """More than are written at a time, of mixed length; whatever the batch, the same text."""
    words = ["ab", "abc", "", "cb", "bca"] * 30
    once = generate(spelling_run, "--batch_size", 2, stdin="\n".join(words).encode())
    alone = {word: generate(spelling_run, stdin=word.encode()).out for word in set(words) if word}
    assert lines(once.out) == [alone[word].strip("\n") if word else "" for word in words]


def test_the_model_is_used_without_its_training_data(generate, tmp_path, spelling_run):
    """The run's directory alone is enough: copied, and the data gone."""
    copy = shutil.copytree(spelling_run, tmp_path / "copy")
    config = (copy / "config.json").read_text().replace("tsv:", "tsv:/nowhere")
    (copy / "config.json").write_text(config)
    write_digests(RunDirectory(copy))
    assert generate(copy, stdin=b"abc").out == "A B C\n"


def test_n_best_lists(generate, spelling_run):
    """LINE ||| TEXT ||| SCORE: all different, scores fall, the beam wider than the vocabulary; a blank line has one."""
    done = generate(spelling_run, "--beam", 20, "--nbest", 5, stdin=b"ab\n\nabc\n")
    rows = [row.split(" ||| ") for row in lines(done.out)]
    assert [row[0] for row in rows] == ["0"] * 5 + ["1"] + ["2"] * 5
    assert rows[5] == ["1", "", "0.0000"] and rows[0][1] == "A B" and rows[6][1] == "A B C"
    for some in (rows[:5], rows[6:]):
        assert len({row[1] for row in some}) == 5
        finished = [float(row[2]) for row in some if len(row) == 3]
        assert finished == sorted(finished, reverse=True) and np.isfinite(finished).all()
    best = generate(spelling_run, "--beam", 20, stdin=b"ab\n\nabc\n")
    assert lines(best.out) == ["A B", "", "A B C"]


def test_an_output_without_an_end_is_flagged(generate, spelling_run):
    done = generate(spelling_run, "--max_tokens", 2, "--beam", 2, "--nbest", 2, stdin=b"abc\n")
    assert " ||| unfinished\n" in done.out and "cut off after 2 tokens, no end in sight: line 1" in done.err


def test_scores_are_those_of_the_tokens(generate, spelling_run):
    """Greedy: the log-probability. A beam of 2 with α = 0: the same for the same text; α divides it."""
    plain = dict(zip(("score", "text"), lines(generate(spelling_run, "--scores", stdin=b"abc").out)[0].split("\t")))
    beam, divided = (
        lines(generate(spelling_run, "--scores", "--beam", 2, "--length_penalty", a, stdin=b"abc").out)[0].split("\t")
        for a in (0, 1)
    )
    assert plain["text"] == beam[1] == divided[1] == "A B C"
    assert float(plain["score"]) == pytest.approx(float(beam[0]), abs=2e-4)
    tokens = len("A B C") + 1
    assert float(divided[0]) == pytest.approx(float(beam[0]) / ((5 + tokens) / 6), abs=2e-4)


def test_what_is_sampled_depends_on_seed_and_line_only(generate, spelling_run):
    hot = ["--sample", "--temperature", 3]
    lines_in = b"ab\nabc\ncc\n"
    first = generate(spelling_run, *hot, stdin=lines_in)
    assert generate(spelling_run, *hot, stdin=lines_in).out == first.out
    assert generate(spelling_run, *hot, "--seed", 1, stdin=lines_in).out != first.out
    assert generate(spelling_run, *hot, "--batch_size", 1, stdin=lines_in).out == first.out
    assert len(set(lines(generate(spelling_run, *hot, stdin=b"abc\nabc\nabc\n").out))) > 1
    # The text of the line before does not matter.
    assert lines(generate(spelling_run, *hot, stdin=b"cab\nabc\nbb\n").out)[1] == lines(first.out)[1]
    assert generate(spelling_run, "--sample", "--temperature", 0, stdin=b"abc").out == "A B C\n"


def test_attention_maps(generate, tmp_path, monkeypatch, spelling_run):
    folder = tmp_path / "maps"
    done = generate(spelling_run, "--attention", folder, stdin=b"ab\n\nabc\n")
    assert done.code == 0 and sorted(path.name for path in folder.iterdir()) == ["line-1.png", "line-3.png"]
    assert (folder / "line-1.png").read_bytes().startswith(b"\x89PNG")
    assert "is there already" in refused(generate(spelling_run, "--attention", folder, stdin=b"ab\n"))
    run = load_run(spelling_run)
    titles = []
    monkeypatch.setattr("analysis.attention.attention_map", lambda *args: titles.append(args[-1]))
    generate(spelling_run, "--attention", tmp_path / "others", stdin=b"abc\n" + b"abc" * 3000)
    assert [title.removeprefix("Where the last decoder layer looks: ") for title in titles] == [
        "abc",
        "abc" * 19 + "ab…",
    ]
    maps = Translator(run.trained_model(run.select_params("last").params)).attention("ab")
    weights, source, target = maps["decoder_cross_attention"]
    assert source == ["a", "b", "end"] and target == ["A", " ", "B", "end"]
    assert weights.shape == (1, 2, 4, 3)
    own = maps["decoder_self_attention"]
    assert own.keys == ["begin", "A", " ", "B"] and own.queries == target
    assert np.triu(own.weights, 1).max() == 0  # no key lies behind its query
    assert maps["encoder_self_attention"].keys == maps["encoder_self_attention"].queries == source
    for each in maps.values():
        np.testing.assert_allclose(each.weights.sum(axis=-1), 1, atol=1e-5)


def test_checkpoints(generate, spelling_run):
    """Each is named on stderr; there are two of the newest and, if it is none of them, the best."""
    run = load_run(spelling_run)
    last, before = run.select_params("last").params, run.select_params("120").params
    mean = jax.tree.map(lambda a, b: ((a.astype("float64") + b) / 2).astype("float32"), *jax.device_get((last, before)))
    jax.tree.map(np.testing.assert_array_equal, mean, run.select_params("average:2").params)
    ema = run.select_params("ema").params
    assert any((a != b).any() for a, b in zip(jax.tree.leaves(ema), jax.tree.leaves(last)))

    rows = [line for line in (spelling_run / "metrics.jsonl").read_text().splitlines() if '"validation"' in line]
    values = {row["step"]: row["exact_match"] for row in map(json.loads, rows)}
    best = max(values, key=lambda step: (values[step], step))
    assert f"step {best}, the best by validation exact_match" in generate(spelling_run, "--checkpoint", "best").err
    assert "the moving average at step 150" in generate(spelling_run, "--checkpoint", "ema").err
    assert "average:5 wants the newest 5 checkpoints, and the run has kept 2 (120, 150)" in refused(
        generate(spelling_run, "--checkpoint", "average:5")
    )
    assert "no checkpoint of step 7: there are steps" in refused(generate(spelling_run, "--checkpoint", "7"))
    for word in ("bset", "average:0", "average:x", "-1"):
        assert "checkpoint" in refused(generate(spelling_run, f"--checkpoint={word}"))


@pytest.mark.parametrize(
    ("damage", "code", "message"),
    [
        (
            lambda run: (run / "data_spec.json").write_text("{"),
            2,
            "data_spec.json is not what training wrote: JSONDecodeError",
        ),
        (
            lambda run: (run / "data_spec.json").write_text("{}"),
            2,
            "data_spec.json is not what training wrote: KeyError",
        ),
        (lambda run: (run / "data_spec.json").unlink(), 2, "its training has not begun, or is of an older version"),
        (lambda run: shutil.rmtree(run / "tokenizers"), 1, "tokenizer_source.json"),
        (lambda run: (run / "config.json").write_text('{"experiment": 3}'), 2, "it names no experiment"),
        (
            lambda run: (run / "config.json").write_text('{"experiment": "reverse", "model": 3}'),
            2,
            "model must be a section of options, got 3",
        ),
    ],
)
def test_what_is_damaged_is_said_in_one_line(generate, tmp_path, spelling_run, damage, code, message):
    copy = shutil.copytree(spelling_run, tmp_path / "copy")
    (copy / "SHA256SUMS").unlink()  # as of an older version: with it, any damage is told alike
    damage(copy)
    assert message in refused(generate(copy, stdin=b"ab\n"), code)
    (copy / "data_spec.json").write_text("{}")
    shutil.copy(spelling_run / "SHA256SUMS", copy)
    assert re.search(r"(is not as it was written|is missing)", refused(generate(copy, stdin=b"ab\n"), 2))


def test_a_checkpoint_that_is_not_whole_is_passed_over(generate, tmp_path, spelling_run):
    copy = shutil.copytree(spelling_run, tmp_path / "copy")
    shutil.rmtree(copy / "checkpoints" / "150" / "state")
    done = generate(copy, stdin=b"ab\n")
    assert (done.code, done.out.count("\n")) == (0, 1)
    assert "checkpoints/150 is passed over: it has no state\n" in done.err and "step 120, the last" in done.err
    done = generate(copy, "--checkpoint", "150")
    assert done.code == 2 and "no checkpoint of step 150: there are steps" in done.err
    for step in (copy / "checkpoints").iterdir():
        shutil.rmtree(step / "data", ignore_errors=True)
    done = generate(copy)
    assert done.code == 1 and done.err.endswith("copy/checkpoints is whole: remove it to begin anew\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirection", "code", "message"),
    [
        ("< {lines} | head -n 1", 1, ""),
        ("< {lines} > /dev/full", 1, "python generate.py: [Errno 28] No space left on device\n"),
        ("<&- ", 1, "python generate.py: stdin and stdout must be open\n"),
        ("< {lines} >&-", 1, "python generate.py: stdin and stdout must be open\n"),
        ("< {lines} 2>&- | sort -u", 0, ""),
    ],
)
def test_streams_that_end_early(tmp_path, spelling_run, redirection, code, message):
    """One line at most, no traceback, and never a word of stderr's on stdout."""
    (tmp_path / "lines.txt").write_text("ab\n" * 20_000)
    command = f"set -o pipefail; {sys.executable} generate.py {spelling_run} {redirection}"
    command = command.replace("{lines}", str(tmp_path / "lines.txt"))
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    said = "".join(line for line in done.stderr.splitlines(keepends=True) if "step 150, the last" not in line)
    assert (done.returncode, said) == (code, message) and done.stdout in ("", "A B\n")


def test_what_is_no_run_is_refused_in_one_line(generate, tmp_path, spelling_run):
    assert "is no directory" in refused(generate(tmp_path / "nowhere"))
    (tmp_path / "thesis.txt").write_text("mine")
    assert "has no config.json" in refused(generate(tmp_path))
    begun = tmp_path / "begun"
    begun.mkdir()
    shutil.copy(spelling_run / "config.json", begun)
    assert "has no checkpoint" in refused(generate(begun))
    assert "wanted a run's directory first" in refused(generate())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["begun", "thesis.txt"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--beem", "4"], "perhaps you meant --beam"),
        (["--beam", "x"], "--beam must be a whole number, got 'x'"),
        (["--beam"], "--beam must be a whole number, got nothing"),
        (["lines.txt"], "unknown word 'lines.txt'"),
        (["--beam", "0"], "--beam must be a whole number, 1 or more, got 0"),
        (["--nbest", "3"], "--nbest 3 wants a beam at least as wide"),
        (["--sample", "--beam", "4"], "exclude each other"),
        (["--top_k", "5"], "--top_k 5 has no effect without --sample"),
        (["--length_penalty", "1"], "has no effect without --beam 2 or more"),
        (["--sample", "--temperature", "-1"], "--temperature must be a number, 0 or more"),
        (["--sample", "--top_p", "0"], "--top_p must be a number in (0, 1]"),
        (["--sample", "--seed", "4294967296"], "--seed must be a whole number from 0 to 2**32 - 1, got 4294967296"),
        (["--max_tokens", "1000"], "outputs of 1000 tokens are longer than the model's"),
        (["--prompt", "x"], "--prompt is for a language model"),
    ],
)
def test_options_that_make_no_sense_are_refused(generate, spelling_run, words, message):
    assert message in refused(generate(spelling_run, *words))


def test_input_that_is_no_text_is_refused_by_its_line(generate, spelling_run):
    done = generate(spelling_run, stdin=b"ab\n\xff\n")
    assert done.code == 1 and done.out == "" and "line 2 of the input: byte 0xff is not UTF-8" in done.err


def test_a_terminal_is_answered_line_by_line(generate, spelling_run):
    done = generate(spelling_run, stdin=b"ab\n\nabc\n", terminal=True)
    assert done.out == "A B\n\nA B C\n" and "Ctrl-D ends" in done.err
    hot = ["--sample", "--temperature", 3, "--max_tokens", 6]
    typed, read = (generate(spelling_run, *hot, stdin=b"ab\nab\nx\n", terminal=each) for each in (True, False))
    assert typed.out == read.out and len(set(lines(read.out)[:2])) == 2 and "in line 3: 'x'" in typed.err
    assert "--attention is for the lines of a file" in refused(
        generate(spelling_run, "--attention", "maps", stdin=b"ab\n", terminal=True)
    )


def test_a_language_model_goes_on(generate, text_run):
    """Far beyond its 16 positions, in pieces; the same again; a prompt from stdin is the same as that of the option."""
    done = generate(text_run, "--prompt", "the cat", "--max_tokens", 60)
    assert done.code == 0, done.err
    assert done.out.startswith(" sat. the dog ran.") and len(done.out) == 61
    assert generate(text_run, "--max_tokens", 60, stdin=b"the cat").out == done.out
    assert generate(text_run, "--prompt", "the cat", "--max_tokens", 30).out == done.out[:30] + "\n"
    sampled = [generate(text_run, "--prompt", "", "--sample", "--seed", seed).out for seed in (0, 1, 0)]
    assert sampled[0] == sampled[2] != sampled[1]
    assert "2 unknown tokens: 'Q', 'Z'" in generate(text_run, "--prompt", "ZQ", "--max_tokens", 1).err
    typed = generate(text_run, "--max_tokens", 20, stdin=b"the cat\nthe dog\n", terminal=True)
    assert lines(typed.out)[0] == done.out[:20] and len(lines(typed.out)) == 2
    assert lines(typed.out)[1] == generate(text_run, "--max_tokens", 20, "--prompt", "the dog").out.strip("\n")
    assert (
        "of the 24 tokens of the prompt the model reads the last 12\n"
        in generate(text_run, "--prompt", "the cat sat. the dog ran", "--max_tokens", 1).err
    )
    assert "--beam is for an encoder–decoder" in refused(generate(text_run, "--beam", 2))
    assert "--batch_size is for an encoder–decoder" in refused(generate(text_run, "--batch_size", 2))
