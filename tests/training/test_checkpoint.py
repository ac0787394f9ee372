"""CheckpointManager: what goes in comes out, the newest are kept, and nothing is lost or taken for what it is not."""

import re
import shutil
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from tests.scripts import python
from training.checkpoint import CheckpointManager, DamagedCheckpointError

ROOT = Path(__file__).resolve().parents[2]


def make_state(seed: int = 0):
    params = {"encoder": {"kernel": jax.random.normal(jax.random.key(seed), (4, 3)), "scale": jnp.ones(3)}}
    return {
        "params": params,
        "optimizer": optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3)).init(params),
        "key": jax.random.key(seed + 7),
        "hyperparameters": {"peak_lr": jnp.float32(1e-3), "steps": jnp.int32(10), "finite": jnp.array(True)},
        "absent": None,
    }


def abstract(state, sharding=None):
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), state)


def assert_same(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert a.dtype == b.dtype
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("make_like", [lambda state: state, abstract], ids=["arrays", "shapes"])
def test_restores_state_and_data(tmp_path, make_like):
    state, data = make_state(), {"position": 7, "note": ["x", None, True, 0.1]}
    with CheckpointManager(tmp_path, keep=1) as checkpoints, warnings.catch_warnings():
        warnings.simplefilter("error")
        checkpoints.save(3, state, data)
        restored, restored_data = checkpoints.restore(make_like(make_state(seed=1)))
    assert_same(restored, state)
    assert restored_data == data
    # The key is typed, and goes on with the same numbers.
    assert jax.random.normal(restored["key"]) == jax.random.normal(state["key"])


def test_keeps_the_newest(tmp_path):
    with CheckpointManager(tmp_path, keep=2) as checkpoints:
        assert checkpoints.latest() is None
        for step in range(5):
            checkpoints.save(step, {"w": jnp.float32(step)}, {"position": step})
        assert checkpoints.latest() == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "4"]
    with CheckpointManager(tmp_path, keep=2) as checkpoints:
        assert checkpoints.latest() == 4
        for step, asked in [(4, None), (3, 3)]:
            state, data = checkpoints.restore({"w": jnp.float32(0)}, asked)
            assert (float(state["w"]), data) == (step, {"position": step})


def test_a_saved_step_is_left_as_it_is(tmp_path):
    with CheckpointManager(tmp_path, keep=2) as checkpoints:
        checkpoints.save(1, {"w": jnp.float32(1)}, {"position": 1})
        checkpoints.save(1, {"w": jnp.float32(2)}, {"position": 2})
        state, data = checkpoints.restore({"w": jnp.float32(0)})
    assert (float(state["w"]), data) == (1.0, {"position": 1})


def test_donation_right_after_save_does_not_reach_the_checkpoint(tmp_path):
    increment = jax.jit(lambda state: jax.tree.map(lambda leaf: leaf + 1, state), donate_argnums=0)
    state = increment({str(i): jnp.zeros((300, 300)) for i in range(10)})
    with CheckpointManager(tmp_path, keep=1) as checkpoints:
        checkpoints.save(1, state, {})
        for _ in range(5):
            state = increment(state)
        restored, _ = checkpoints.restore(abstract(state))
    assert all((leaf == 1.0).all() for leaf in jax.tree.leaves(restored))


def test_restored_arrays_can_be_donated(tmp_path):
    with CheckpointManager(tmp_path, keep=1) as checkpoints, warnings.catch_warnings():
        warnings.simplefilter("error")
        checkpoints.save(1, {"w": jnp.zeros((8, 8))}, {})
        state, _ = checkpoints.restore({"w": jax.ShapeDtypeStruct((8, 8), jnp.float32)})
        jax.jit(lambda state: {"w": state["w"] + 1}, donate_argnums=0)(state)
    assert state["w"].is_deleted()


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda s: s["params"]["encoder"].update(kernel=jnp.zeros((4, 5))),
         "params/encoder/kernel: saved float32[4, 3], wanted float32[4, 5]"),
        (lambda s: s["params"]["encoder"].pop("scale"), "params/encoder/scale: saved float32[3], wanted nothing"),
        (lambda s: s["params"].update(decoder=jnp.zeros(2)), "params/decoder: saved nothing, wanted float32[2]"),
        (lambda s: s["hyperparameters"].update(steps=jnp.float32(1)),
         "hyperparameters/steps: saved int32[], wanted float32[]"),
        (lambda s: s.update(key=jnp.zeros(2, jnp.uint32)), "key: saved key<fry>[], wanted uint32[2]"),
    ],
    ids=["shape", "less", "more", "dtype", "key"],
)  # fmt: skip
def test_another_tree_is_refused_by_the_path_of_its_leaf(tmp_path, change, message):
    with CheckpointManager(tmp_path, keep=1) as checkpoints:
        checkpoints.save(5, make_state(), {})
        like = make_state()
        change(like)
        with pytest.raises(ValueError, match=re.escape(message)) as caught:
            checkpoints.restore(like)
    assert "\n" not in str(caught.value) and str(tmp_path / "5") in str(caught.value)


def test_a_part_of_the_state_is_restored_and_compared_alone(tmp_path):
    state = {**make_state(), "params2": jnp.zeros(3)}
    with CheckpointManager(tmp_path, keep=1) as checkpoints:
        checkpoints.save(5, state, {"position": 1})
        params, data = checkpoints.restore(abstract(state["params"]), part="params")
        assert_same(params, state["params"])
        assert data == {"position": 1}
        encoder, _ = checkpoints.restore(abstract(state["params"]["encoder"]), 5, part="params/encoder")
        assert_same(encoder, state["params"]["encoder"])
        scale, _ = checkpoints.restore(jnp.zeros(3), part="params/encoder/scale")
        assert_same(scale, state["params"]["encoder"]["scale"])
        less, more = make_state()["params"], make_state()["params"]
        del less["encoder"]["scale"]
        more["decoder"] = jnp.zeros(2)
        for like, message in (
            (less, "params/encoder/scale: saved float32[3], wanted nothing"),
            (more, "params/decoder: saved nothing, wanted float32[2]"),
        ):
            with pytest.raises(ValueError, match=re.escape(message)):
                checkpoints.restore_newest(like, part="params")
        with pytest.raises(ValueError, match=re.escape("ema/w: saved nothing, wanted float32[2]")):
            checkpoints.restore({"w": jnp.zeros(2)}, part="ema")


def test_missing_checkpoints(tmp_path):
    with CheckpointManager(tmp_path, keep=3) as checkpoints:
        with pytest.raises(FileNotFoundError, match="found none"):
            checkpoints.restore({"w": jnp.zeros(2)})
        for step in (10, 20):
            checkpoints.save(step, {"w": jnp.zeros(2)}, {})
        with pytest.raises(FileNotFoundError, match=r"no checkpoint of step 7 .*found steps 10, 20"):
            checkpoints.restore({"w": jnp.zeros(2)}, step=7)


def test_misuse_is_named(tmp_path):
    with pytest.raises(ValueError, match="keep is 0"):
        CheckpointManager(tmp_path, keep=0)
    with pytest.raises(RuntimeError, match="with CheckpointManager"):
        CheckpointManager(tmp_path, keep=1).save(1, {"w": jnp.zeros(2)}, {})


def without(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def emptied(path):
    for child in path.iterdir():
        without(child)


def cut(path):
    for file in path.iterdir():
        file.write_bytes(file.read_bytes()[:-20])


def edited(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def state_of_another(step):
    without(step / "state")
    shutil.copytree(step.parent / "2/state", step / "state")


def without_marks(step):
    for mark in step.rglob("commit_success.txt"):
        mark.unlink()


DAMAGE = {
    "empty": (emptied, "it has no _CHECKPOINT_METADATA"),
    "junk": (lambda step: (emptied(step), (step / "junk").touch()), "it has no _CHECKPOINT_METADATA"),
    "a file": (lambda step: (without(step), step.touch()), "it is no directory"),
    "no state": (lambda step: without(step / "state"), "it has no state"),
    "no data": (lambda step: without(step / "data"), "it has no data"),
    "state/d emptied": (lambda step: emptied(step / "state/d"), "nothing is in its state/d"),
    "an empty file": (lambda step: (step / "state/manifest.ocdbt").write_text(""), "its state/manifest.ocdbt is empty"),
    "no _METADATA": (lambda step: without(step / "state/_METADATA"), "its state/_METADATA is missing"),
    "no marks": (without_marks, "its commit_success.txt is missing"),
    "one mark": (lambda step: without(step / "state/commit_success.txt"), "its state/commit_success.txt is missing"),
    "record": (lambda step: (step / "_CHECKPOINT_METADATA").write_text("{"), "its _CHECKPOINT_METADATA is damaged"),
    "metrics": (lambda step: (step / "metrics/metrics").write_text("[1]"), "its metrics/metrics is damaged"),
    "cut arrays": (lambda step: cut(step / "state/d"), "cannot be read, it may be damaged"),
    "cut data": (lambda step: (step / "data/data.json").write_text("{"), "its data/data.json is damaged"),
    "another position": (lambda step: edited(step / "data/data.json", "7", "8"), "its data/data.json is damaged"),
    "another metric": (lambda step: edited(step / "metrics/metrics", "1.0", "0.5"), "is not what was saved"),
    "other arrays": (lambda step: state_of_another(step), "w is not what was saved"),
    "lost part": (lambda step: without(step / "state/ocdbt.process_0"), "cannot be read, it may be damaged"),
}  # fmt: skip


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory):
    """CheckpointManager 2 and 7."""
    directory = tmp_path_factory.mktemp("two") / "checkpoints"
    with CheckpointManager(directory, keep=3) as checkpoints:
        for step in (2, 7):
            checkpoints.save(step, {"w": jnp.arange(2000.0) + step}, {"position": step}, {"loss": 1.0})
    return directory


@pytest.mark.parametrize("part", ["", "w"], ids=["whole", "part"])
@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_not_whole_is_named_and_passed_over(tmp_path, two_steps, capsys, kind, part):
    """The newest whole one is used; whoever reads changes nothing, and whoever saves renames what is damaged."""
    directory = tmp_path / "checkpoints"
    shutil.copytree(two_steps, directory)
    damage, why = DAMAGE[kind]
    damage(directory / "7")
    (directory / "5.orbax-checkpoint-tmp").mkdir()
    before = sorted(directory.rglob("*"))
    like = {"w": jnp.zeros(2000)}
    with CheckpointManager(directory, keep=1, best_metric="loss", direction="min") as checkpoints:
        for _ in range(2):
            step, state, data = checkpoints.restore_newest(like[part] if part else like, part=part)
            w = state if part else state["w"]
            assert (step, float(w[0]), data) == (2, 2.0, {"position": 2})
        assert (checkpoints.latest(), checkpoints.best()) == (2, (2, 1.0))
        assert sorted(directory.rglob("*")) == before
        line = capsys.readouterr().err
        assert line.count("\n") == 1 and f"{directory / '7'} is passed over: " in line and why in line
        checkpoints.save(7, {"w": jnp.arange(2000.0) + 8}, {"position": 7})
        assert float(checkpoints.restore(like)[0]["w"][0]) == 8.0
    assert sorted(path.name for path in directory.iterdir()) == ["2", "7", "7.damaged"]
    assert capsys.readouterr().err == ""


def damaged_copies(content, flips):
    """The content with one bit flipped, at both ends and at places between them; and cut off in three places."""
    random = np.random.default_rng(len(content))
    places = {0, len(content) - 1, *random.integers(len(content), size=flips).tolist()}
    for place in sorted(places):
        flipped = bytearray(content)
        flipped[place] ^= 1 << int(random.integers(8))
        yield f"bit flipped at {place}", bytes(flipped)
    for length in (0, len(content) // 2, len(content) - 1):
        yield f"cut to {length}", content[:length]


@pytest.mark.parametrize("flips", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_a_flipped_bit_or_a_cut_anywhere_is_noticed_or_harmless(tmp_path, two_steps, flips):
    """What is restored is what was saved, bit for bit: the damaged checkpoint's, or those of the one before."""
    directory = tmp_path / "checkpoints"
    shutil.copytree(two_steps, directory)
    files = sorted(path for path in (directory / "7").rglob("*") if path.is_file())
    outcomes = {}
    for file in files:
        content = file.read_bytes()
        for what, damaged in damaged_copies(content, flips):
            file.write_bytes(damaged)
            with CheckpointManager(directory, keep=3, best_metric="loss", direction="min") as checkpoints:
                step, state, data = checkpoints.restore_newest({"w": jnp.zeros(2000)})
                best = checkpoints.best()
            where = f"{file.relative_to(directory)}, {what}"
            np.testing.assert_array_equal(state["w"], np.arange(2000.0) + step, err_msg=where)
            assert data == {"position": step} and best == (step, 1.0), where
            outcomes.setdefault(step, []).append(where)
        file.write_bytes(content)
    assert outcomes.keys() == {2, 7}
    assert any("state/ocdbt.process_0/d/" in where for where in outcomes[2])


def test_none_that_is_whole_is_not_none(tmp_path):
    """A run whose checkpoints are all damaged does not begin anew by itself."""
    (tmp_path / "7").mkdir()
    with CheckpointManager(tmp_path, keep=1) as checkpoints:
        assert checkpoints.latest() is None
        with pytest.raises(FileNotFoundError, match=r"no checkpoint in .* is whole"):
            checkpoints.restore_newest({"w": jnp.zeros(2)})
        with pytest.raises(FileNotFoundError, match="no checkpoint of step 7"):
            checkpoints.restore({"w": jnp.zeros(2)}, 7)


def test_a_damaged_step_that_was_asked_for_is_no_other_step(tmp_path, two_steps):
    shutil.copytree(two_steps, tmp_path / "checkpoints")
    cut(tmp_path / "checkpoints/2/state/d")
    damaged = "checkpoints/2 cannot be read, it may be damaged"
    with (
        CheckpointManager(tmp_path / "checkpoints", keep=1) as checkpoints,
        pytest.raises(DamagedCheckpointError, match=damaged),
    ):
        checkpoints.restore({"w": jnp.zeros(2000)}, 2)


def test_checkpoints_of_versions_without_marks_are_whole(tmp_path, two_steps):
    """Orbax 0.12.0 to 0.12.7 wrote none, and a run may go on with a newer one."""
    shutil.copytree(two_steps, tmp_path / "checkpoints")
    without_marks(tmp_path / "checkpoints/2")
    with CheckpointManager(tmp_path / "checkpoints", keep=1) as checkpoints:
        assert checkpoints.steps() == [2, 7]
    without_marks(tmp_path / "checkpoints/7")
    with CheckpointManager(tmp_path / "checkpoints", keep=1) as checkpoints:
        assert checkpoints.steps() == [2, 7]


SAVE = """
    import os, sys, time
    import jax.numpy as jnp
    from training.checkpoint import CheckpointManager
    directory, step, end = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    state = {str(i): jnp.full((1000, 1000), float(step)) for i in range(10)}
    with CheckpointManager(directory, keep=3) as checkpoints:
        checkpoints.save(step, state, {"position": step})
        if end == "killed":
            os.kill(os.getpid(), 9)
        if end == "raises":
            raise KeyError("the loop's own error")
"""


def test_a_process_that_ends_has_its_checkpoint_and_one_that_is_killed_harms_none(tmp_path):
    like = {str(i): jax.ShapeDtypeStruct((1000, 1000), jnp.float32) for i in range(10)}

    def newest():
        with CheckpointManager(tmp_path, keep=3) as checkpoints:
            state, data = checkpoints.restore(like)
            return checkpoints.latest(), data["position"], {float(leaf.mean()) for leaf in state.values()}

    done = python(SAVE, str(tmp_path), "1", "returns")
    assert (done.returncode, done.stderr) == (0, "")
    assert newest() == (1, 1, {1.0})
    killed = python(SAVE, str(tmp_path), "2", "killed")
    assert killed.returncode == -9
    (tmp_path / "9.orbax-checkpoint-tmp").mkdir()
    assert newest() == (1, 1, {1.0})
    raised = python(SAVE, str(tmp_path), "2", "raises")  # over what the killed one left
    assert raised.returncode == 1 and raised.stderr.strip().endswith('KeyError: "the loop\'s own error"')
    assert newest() == (2, 2, {2.0})


MESH = """
    import sys
    import jax, jax.numpy as jnp, numpy as np
    from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
    from training.checkpoint import CheckpointManager
    assert jax.device_count() == 4
    mesh = jax.make_mesh((2, 2), ("data", "tensor"), axis_types=(AxisType.Auto, AxisType.Auto))
    shardings = {"w": NamedSharding(mesh, P("data", "tensor")), "key": NamedSharding(mesh, P())}
    state = jax.device_put({"w": jnp.arange(32.0).reshape(4, 8), "key": jax.random.key(5)}, shardings)
    with jax.set_mesh(mesh), CheckpointManager(sys.argv[1], keep=1) as checkpoints:
        checkpoints.save(1, state, {"position": 1})
        for like in (state, jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), state, shardings)):
            restored, _ = checkpoints.restore(like)
            assert {name: leaf.sharding for name, leaf in restored.items()} == shardings
            assert restored["w"].sharding.mesh.axis_types == mesh.axis_types
            np.testing.assert_array_equal(restored["w"], state["w"])
            np.testing.assert_array_equal(jax.random.key_data(restored["key"]), jax.random.key_data(state["key"]))
"""  # noqa: E501


def test_inside_a_mesh_and_on_another_device_count(tmp_path):
    done = python(MESH, str(tmp_path), XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert done.returncode == 0, done.stderr
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    like = {"w": jax.ShapeDtypeStruct((4, 8), jnp.float32), "key": jax.ShapeDtypeStruct((), jax.random.key(0).dtype)}
    for sharding in (None, NamedSharding(mesh, PartitionSpec())):
        with CheckpointManager(tmp_path, keep=1) as checkpoints, warnings.catch_warnings():
            warnings.simplefilter("error")
            state, _ = checkpoints.restore(abstract(like, sharding))
        assert_same(state, {"w": jnp.arange(32.0).reshape(4, 8), "key": jax.random.key(5)})
