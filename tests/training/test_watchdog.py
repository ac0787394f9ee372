"""A run that is stuck ends itself; one that is slow does not."""

import re
from pathlib import Path

from tests.scripts import python
from training.watchdog import EXIT_CODE
from workdir.metric_writer import read_metrics

STUCK = """
    import dataclasses, sys, time
    from data.loading import load
    from tests.small_runs import spelling, spelling_corpus
    from pathlib import Path
    from train import train

    def data(config, tokenizers_from):
        found = load(config.data, tokenizers_from)
        batches = found.train_batches
        def some(*arguments):
            for number, batch in enumerate(batches(*arguments)):
                if number == 5:
                    time.sleep(600)
                yield batch
        object.__setattr__(found, "train_batches", some)
        return found

    folder = Path(sys.argv[1])
    experiment = spelling(folder / "run", spelling_corpus(folder), log_every=1, watchdog_minutes=0.05)
    train(dataclasses.replace(experiment, data=data))
"""


def test_a_run_that_is_stuck_ends_with_the_step_and_the_stacks(tmp_path):
    done = python(STUCK, str(tmp_path))
    assert done.returncode == EXIT_CODE, done.stderr
    line = "reverse: no step has ended for 0.05 minutes, after step 5: this process ends with exit code 75; "
    assert line in done.stderr and re.search(r"line \d+ in some\n", done.stderr)  # where it waits
    assert [row["step"] for row in read_metrics(Path(tmp_path) / "run")] == [1, 2, 3, 4]


SLOW = """
    import time
    from training.watchdog import Watchdog
    for minutes in (0.01, 0):
        with Watchdog(minutes, "slow", 0) as watchdog:
            for step in range(6):
                time.sleep(0.3)
                watchdog.beat(step)
    time.sleep(1)
    print("ended")
"""


def test_a_run_that_goes_on_or_is_over_is_left_alone(tmp_path):
    assert python(SLOW).stdout == "ended\n"
