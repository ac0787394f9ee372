"""One range of seeds, wherever one is given: what is outside is refused, what is inside is another seed each."""

import jax
import numpy as np
import pytest

from data.config import DataConfig
from data.datasets.dates import DatesConfig
from data.datasets.reverse import ReverseConfig
from data.inspect import Inspection
from data.plan import TrainPlan
from inference.generation_config import DecodingOptions
from training.config import TrainConfig

TAKERS = {
    "training": lambda seed: TrainConfig(seed=seed),
    "decoding": lambda seed: DecodingOptions(sample=True, seed=seed),
    "order": lambda seed: TrainPlan(np.zeros(3, int), (1,), seed),
    "inspection": lambda seed: Inspection(DataConfig("reverse", batch_size=1), seed=seed),
    "dates": lambda seed: DatesConfig(name="x", seed=seed),
    "reverse": lambda seed: ReverseConfig(name="x", seed=seed),
}


@pytest.mark.parametrize("taker", TAKERS)
def test_all_have_the_same_range(taker):
    for seed in (0, 1, 2**31, 2**32 - 1):
        TAKERS[taker](seed)
    for seed in (-1, 2**32, 2**63, 10**400, 1.0, True, None):
        with pytest.raises(ValueError) as error:
            TAKERS[taker](seed)
        assert str(error.value).removeprefix("--") == f"seed must be a whole number from 0 to 2**32 - 1, got {seed!r}"


def test_every_seed_in_the_range_is_its_own():
    seeds = (0, 1, 2**31 - 1, 2**31, 2**32 - 1)
    keys = [jax.random.key(seed, impl="threefry2x32") for seed in seeds]
    assert len({tuple(jax.random.key_data(key).tolist()) for key in keys}) == len(seeds)
    assert len({np.random.RandomState(seed).randint(2**31 - 1) for seed in seeds}) == len(seeds)
