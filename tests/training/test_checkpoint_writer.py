"""Saves that fail: tried again, replaced by the next, or raised; never unsaid."""

import dataclasses

import jax
import numpy as np
import pytest
from orbax.checkpoint import v1 as ocp

from experiments import reverse
from tests.scripts import python
from train import train
from training import retry
from training.checkpoint import CheckpointManager

FULL_DISK = """
    import resource, sys
    import jax, jax.numpy as jnp
    from training import retry
    from training.checkpoint import CheckpointManager
    retry.RETRY_SECONDS = (0.1, 0.1)
    state = {"w": jax.random.normal(jax.random.key(0), (500, 500))}
    with CheckpointManager(sys.argv[1], keep=3) as checkpoints:
        checkpoints.save(1, {"w": jnp.zeros((500, 500))}, {})
        checkpoints.latest()
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        checkpoints.save(2, state, {})
        if sys.argv[2] == "next save":
            checkpoints.save(3, state, {})
            print("went on after a save that failed")
"""


@pytest.mark.parametrize("surfaces", ["next save", "close"])
def test_a_failed_background_save_is_raised(tmp_path, surfaces):
    done = python(FULL_DISK, str(tmp_path), surfaces)
    assert done.returncode == 1 and done.stdout == ""
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"OSError: a checkpoint could not be written to {tmp_path}") and "File too large" in last
    assert "ERROR:absl" not in done.stderr
    with CheckpointManager(tmp_path, keep=3) as checkpoints:
        assert checkpoints.latest() == 1


DROPPED_DRIVE = """
    import resource, sys, threading
    import jax, jax.numpy as jnp
    from training import retry
    from training.checkpoint import CheckpointManager
    retry.RETRY_SECONDS = (4.0,)
    state = {"w": jax.random.normal(jax.random.key(0), (500, 500))}
    def come_back():
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with CheckpointManager(sys.argv[1], keep=3) as checkpoints:
        checkpoints.save(1, {"w": jnp.zeros((500, 500))}, {})
        checkpoints.latest()
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        checkpoints.save(2, state, {})
        threading.Timer(2.0, come_back).start()
        if sys.argv[2] == "donated":
            copy = {"w": state["w"] + 0}
            state["w"].delete()  # as the next step does, which takes the state's buffers
            import time
            time.sleep(3.0)
            checkpoints.save(3, copy, {})
"""


@pytest.mark.parametrize(("state", "newest"), [("kept", 2), ("donated", 3)])
def test_a_drive_that_drops_and_comes_back_costs_no_run(tmp_path, state, newest):
    done = python(DROPPED_DRIVE, str(tmp_path), state)
    assert done.returncode == 0, done.stderr
    ending = "again in 4 s" if state == "kept" else "the next will be"
    assert f"checkpoint 2 could not be written to {tmp_path}, {ending}: " in done.stderr
    wanted = {"w": jax.random.normal(jax.random.key(0), (500, 500))}
    with CheckpointManager(tmp_path, keep=3) as checkpoints:
        assert checkpoints.steps() == [1, newest]
        found, _ = checkpoints.restore(wanted)
    np.testing.assert_array_equal(found["w"], wanted["w"])


ALL_LOST = """
    import resource, sys, time
    import jax, jax.numpy as jnp
    from training import retry
    from training.checkpoint import CheckpointManager
    retry.RETRY_SECONDS = (0.1,)
    states = [{"w": jax.random.normal(jax.random.key(seed), (500, 500))} for seed in range(4)]
    with CheckpointManager(sys.argv[1], keep=3) as checkpoints:
        checkpoints.save(1, {"w": jnp.zeros((500, 500))}, {})
        checkpoints.latest()
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        for step in range(2, 2 + int(sys.argv[2])):
            print(step)
            checkpoints.save(step, states[step - 2], {})
            time.sleep(1.0)
            states[step - 2]["w"].delete()
"""


@pytest.mark.parametrize(("saves", "begun"), [(1, "2\n"), (3, "2\n3\n4\n")], ids=["at the end", "two in a row"])
def test_states_that_are_lost_are_raised(tmp_path, saves, begun):
    """One is replaced by the next; without a next, or where that is lost too, the run has failed."""
    done = python(ALL_LOST, str(tmp_path), str(saves))
    assert done.returncode == 1 and done.stdout == begun, done
    assert done.stderr.count("the next will be") == 1
    assert done.stderr.strip().splitlines()[-1].startswith("OSError: a checkpoint could not be written to")


def test_a_run_whose_first_save_fails_once_ends_with_the_same_state(tmp_path, monkeypatch, capsys):
    base = reverse.experiment()
    settings = dataclasses.replace(base.config.train, steps=4, save_every=2, evaluate_every=4, report=False)
    model = dataclasses.replace(base.config.model, d_model=16, num_heads=2, d_ff=16)

    def run(name):
        config = dataclasses.replace(base.config, train=settings, model=model, workdir=str(tmp_path / name))
        return train(dataclasses.replace(base, config=config)).params

    whole = run("whole")
    save, failures = ocp.training.Checkpointer.save_checkpointables_async, [OSError(107, "Endpoint is not connected")]

    def drops_once(self, *args, **options):
        if failures:
            raise failures.pop()
        return save(self, *args, **options)

    monkeypatch.setattr(ocp.training.Checkpointer, "save_checkpointables_async", drops_once)
    monkeypatch.setattr(retry, "RETRY_SECONDS", (0.1,))
    jax.tree.map(np.testing.assert_array_equal, run("dropped"), whole)
    assert "again in 0.1 s: [Errno 107] Endpoint is not connected" in capsys.readouterr().err
    with CheckpointManager(tmp_path / "dropped" / "checkpoints", keep=3) as checkpoints:
        assert checkpoints.steps() == [2, 4]
