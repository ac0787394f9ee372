"""Generate text with a trained run.

    python generate.py runs/dates < lines.txt > answers.txt               one line in, one line out
    python generate.py runs/dates --beam 4 --nbest 3 --checkpoint best    LINE ||| TEXT ||| SCORE, three for each line
    python generate.py runs/dates                                         at a terminal: answers line by line
    some_program | python generate.py runs/dates --interactive            answers line by line in a pipe, too
    python generate.py runs/stdlib_char --prompt "def " --sample --top_k 40

Results go to stdout, all else to stderr.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from inference.generation_config import DecodingOptions

if TYPE_CHECKING:
    from inference.trained_model import TrainedModel
    from workdir.restore import Run

PROGRAM = "python generate.py"


@dataclass(frozen=True)
class GenerateOptions(DecodingOptions):
    """Options of generate.py: decoding, input and output."""

    checkpoint: str = "last"
    """best, last, STEP, average:K (of the last K checkpoints) or ema (the moving average, of --train.ema)."""
    scores: bool = False
    """Write SCORE TAB TEXT: ln p of the tokens; of beam search divided by the length penalty."""
    attention: str = ""
    """A new directory: where the decoder's last layer looked, a picture for each line."""
    interactive: bool = False
    """Answer each line as soon as it is read, as at a terminal: for a pipe that stays open."""
    prompt: str | None = None
    """The prompt of a language model; without, all of stdin, or at a terminal each line."""


def main() -> None:
    """Generate as the command line says."""
    from cli.options import parse_run
    from cli.terminal import exit_on_error, fail, log

    path, options = parse_run(PROGRAM, __doc__, sys.argv[1:], GenerateOptions())
    if sys.stdout is None or (sys.stdin is None and options.prompt is None):
        fail(PROGRAM, "stdin and stdout must be open", 1)
    from workdir.restore import load_run

    try:
        run = load_run(path)
        _check(run, path, options)
        chosen = run.select_params(options.checkpoint)
    except ValueError as error:
        fail(PROGRAM, error)
    except OSError as error:
        fail(PROGRAM, error, 1)
    log(f"{path} ({run.experiment.name}): {chosen.description}")
    from data.home import expand_home
    from inference.translate_lines import translate_interactively, translate_lines

    model = run.trained_model(chosen.params)
    with exit_on_error(PROGRAM):
        if run.is_language_model:
            _continue(model, options)
        elif options.interactive or sys.stdin.isatty():
            log("a line in, a line out; Ctrl-D ends")
            translate_interactively(model, options, sys.stdin.buffer, sys.stdout.buffer, scores=options.scores)
        else:
            maps = Path(expand_home(options.attention, "--attention")) if options.attention else None
            translate_lines(model, options, sys.stdin.buffer, sys.stdout.buffer, scores=options.scores, maps=maps)


def _check(run: Run, path: str, options: GenerateOptions) -> None:
    """Raises ValueError for options that this model, or a terminal, has no use for."""
    from data.home import expand_home
    from inference.translator import output_length

    if run.is_language_model:
        for name in ("beam", "nbest", "batch_size", "scores", "attention"):
            if getattr(options, name) != getattr(GenerateOptions, name):
                raise ValueError(f"--{name} is for an encoder–decoder, and {path} is a language model")
    elif options.prompt is not None:
        raise ValueError(
            f"--prompt is for a language model, and {path} is an encoder–decoder: it reads lines from stdin"
        )
    else:
        output_length(run.model, run.spec, options)
    if options.interactive and options.prompt is not None:
        raise ValueError("--interactive reads prompts from stdin: give it, or --prompt")
    if options.attention:
        if options.interactive or sys.stdin.isatty():
            raise ValueError("--attention is for the lines of a file: < lines.txt")
        directory = Path(expand_home(options.attention, "--attention"))
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise ValueError(f"--attention {directory} is there already: name a new directory")


def _continue(model: TrainedModel, options: GenerateOptions) -> None:
    from cli.terminal import log
    from data.tokenizers.base import UNK
    from inference.text_generation import continuation, tokens_in_sight
    from inference.translate_lines import decode_input, read_lines, unknown_characters

    tokenizer = model.tokenizers["text"]

    def go_on(prompt: str, number: int = 0) -> None:
        ids = tokenizer.encode(prompt)
        if unknown := int((ids == UNK).sum()):
            log(f"the prompt has {unknown} unknown tokens{unknown_characters(tokenizer, [prompt])}")
        if (seen := tokens_in_sight(model, len(ids) + 1)) <= len(ids):
            log(f"of the {len(ids):,} tokens of the prompt the model reads the last {seen:,}")
        for piece in continuation(model, prompt, options.decoding, number):
            sys.stdout.buffer.write(piece.encode("utf-8", "replace"))
            sys.stdout.buffer.flush()
        print(flush=True)

    if options.prompt is not None:
        go_on(options.prompt)
    elif options.interactive or sys.stdin.isatty():
        log("each line is a prompt; Ctrl-D ends")
        for number, line in read_lines(sys.stdin.buffer):
            go_on(line.decode().removesuffix("\n").removesuffix("\r"), number)
    else:
        go_on("\n".join(decode_input(sys.stdin.buffer)))


if __name__ == "__main__":
    from cli.terminal import run_script

    run_script(main)
