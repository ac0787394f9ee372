"""Text in, text out, with a trained run.

    python generate.py runs/dates < lines.txt > answers.txt               one line in, one line out
    python generate.py runs/dates --beam 4 --nbest 3 --checkpoint best    LINE ||| TEXT ||| SCORE, three for each line
    python generate.py runs/dates                                         at a terminal: answers line by line
    python generate.py runs/stdlib_char --prompt "def " --sample --top_k 40

Results go to stdout, all else to stderr.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.decoding_options import DecodingOptions

if TYPE_CHECKING:
    from experiments.saved_run import LoadedModel

PROGRAM = "python generate.py"


@dataclass(frozen=True)
class GenerateOptions(DecodingOptions):
    """What is decoded, and what is written."""

    checkpoint: str = "last"
    """best, last, STEP, average:K (of the last K checkpoints) or ema (the moving average, of --train.ema)."""
    scores: bool = False
    """Write SCORE TAB TEXT: ln p of the tokens; of beam search divided by the length penalty."""
    attention: str = ""
    """A new directory: where the decoder's last layer looked, a picture for each line."""
    prompt: str | None = None
    """What a language model is to go on from; without, all of stdin, or at a terminal each line."""


def main() -> None:
    """The command line."""
    from experiments.run_command_line import complain, parse_run

    path, options = parse_run(PROGRAM, __doc__, sys.argv[1:], GenerateOptions())
    from experiments.saved_run import open_saved_run

    try:
        run = open_saved_run(path)
        _check(run.is_language_model, path, options)
        chosen = run.choose(options.checkpoint)
    except ValueError as error:
        complain(PROGRAM, error)
    _say(f"{path} ({run.experiment.name}): {chosen.words}")
    from experiments.line_translation import translate_lines, translate_typed

    model = run.loaded(chosen.params)
    try:
        if run.is_language_model:
            _continue(model, options)
        elif sys.stdin.isatty():
            translate_typed(model, options, scores=options.scores)
        else:
            maps = Path(options.attention) if options.attention else None
            translate_lines(model, options, sys.stdin.buffer, sys.stdout.buffer, scores=options.scores, maps=maps)
    except BrokenPipeError:  # whoever reads the results has seen enough
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, OSError) as error:
        complain(PROGRAM, error, 1)


def _check(is_language_model: bool, path: str, options: GenerateOptions) -> None:
    """Raises ValueError for options that this kind of model has no use for."""
    if is_language_model:
        for name in ("beam", "nbest", "scores", "attention"):
            if getattr(options, name) != getattr(GenerateOptions, name):
                raise ValueError(f"--{name} is for an encoder–decoder, and {path} is a language model")
    elif options.prompt is not None:
        raise ValueError(
            f"--prompt is for a language model, and {path} is an encoder–decoder: it reads lines from stdin"
        )
    if options.attention:
        directory = Path(options.attention)
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise ValueError(f"--attention {directory} is there already: name a new directory")


def _continue(model: LoadedModel, options: GenerateOptions) -> None:
    from experiments.continuation import continuation
    from experiments.line_translation import decode_input, unknown_characters

    def go_on(prompt: str, number: int = 0) -> None:
        unknown = int((model.tokenizers["text"].encode(prompt) == 3).sum())
        if unknown:
            _say(f"the prompt has {unknown} unknown tokens{unknown_characters(model.tokenizers['text'], [prompt])}")
        for piece in continuation(model, prompt, options.decoding, number):
            sys.stdout.buffer.write(piece.encode("utf-8", "replace"))
            sys.stdout.buffer.flush()
        print(flush=True)

    if options.prompt is not None:
        go_on(options.prompt)
    elif sys.stdin.isatty():
        _say("each line is a prompt; Ctrl-D ends")
        for number, line in enumerate(sys.stdin):
            go_on(line.removesuffix("\n"), number)
    else:
        go_on("\n".join(decode_input(sys.stdin.buffer)))


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
