"""The result of a finished run: parameters, metrics and figures; written at its end, and read again later."""

from __future__ import annotations

import base64
import html
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workdir.data_spec import read_spec
from workdir.run_directory import RESULT
from workdir.train_state import abstract_state, open_checkpoints

if TYPE_CHECKING:
    import flax.linen as nn

    from experiments.experiment import Experiment
    from workdir.run_directory import RunDirectory


@dataclass(frozen=True)
class TrainResult:
    """Result of a run, as `train` returns it."""

    workdir: Path
    """Directory of the run."""
    model: nn.Module
    """`model.apply({"params": result.params}, ...)` runs it."""
    params: Any
    """Nested dict of arrays, after the last step."""
    metrics: dict[str, Any]
    """By name: the last validation means, and what the experiment's report measured."""
    figures: dict[str, Path]
    """Paths of pictures (PNG) by name."""

    def _repr_html_(self) -> str:
        """Show the numbers and the pictures in a notebook."""
        numbers = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{value:.6g}</td></tr>"
            for name, value in self.metrics.items()
            if isinstance(value, (int, float))
        )
        pictures = "".join(
            f'<p>{html.escape(name)}<br><img alt="{html.escape(name)}" style="max-width:100%" '
            f'src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"></p>'
            for name, path in self.figures.items()
        )
        return f"<p>{html.escape(str(self.workdir))}</p><table>{numbers}</table>{pictures}"


def save_result(run: RunDirectory, result: TrainResult) -> None:
    """Write `result.json`, which marks the run as finished. NaN and infinity become null."""
    record = {
        "metrics": result.metrics,
        "figures": {name: str(path.relative_to(run.path)) for name, path in result.figures.items()},
    }
    run.write(RESULT, record)


def read_result(experiment: Experiment, run: RunDirectory) -> TrainResult | None:
    """Read the result of a finished run, the parameters from its last checkpoint; None if it is not finished.

    Raises:
      ValueError: `result.json` or `data_spec.json` is damaged; names the file.
      OSError: the checkpoint of the last step is missing or cannot be read.
    """
    record = run.finished
    if record is None:
        return None
    try:
        metrics, figures = dict(record["metrics"]), {name: run.path / path for name, path in record["figures"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise run.damaged_result("it has no metrics and figures by name") from error
    spec = read_spec(run)
    model = experiment.model(experiment.config, spec.vocab_sizes)
    with open_checkpoints(experiment, run) as checkpoints:
        like = abstract_state(experiment, model, spec).params
        params, _ = checkpoints.restore(like, experiment.config.train.steps, part="params")
    return TrainResult(run.path, model, params, metrics, figures)
