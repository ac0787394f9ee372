"""A few steps on the batches of the pipeline, by any number of processes. `test_devices.py` starts two.

python -m tests.training.two_processes ADDRESS PROCESS DIRECTORY     the losses, on stdout
"""

import json
import sys

import jax

from data.config import DataConfig
from data.loading import load
from model.config import TransformerConfig
from model.transformer import Transformer
from tests.training.samples import constant_rate, hyper_of, mean, sgd, small_state
from training.compilation import compile_step
from training.eval_step import evaluate, make_eval_step
from training.loss import token_loss
from training.sharding import batch_sharding, data_mesh, device_put, make_global_batch, replicated
from training.step import make_train_step


def losses(directory):
    """Of three steps with plain gradient descent, and of the validation split then: as train.py has them."""
    data = load(DataConfig("reverse", batch_size=4, directory=directory))
    config = {"d_model": 16, "num_heads": 2, "d_ff": 32, "num_encoder_layers": 1, "num_decoder_layers": 1}
    model = Transformer(TransformerConfig(**config, max_length=16, dropout=0.0), *data.vocab_sizes.values())
    mesh, loss = data_mesh(), token_loss(model)
    hyper = hyper_of(model, peak_lr=0.5)
    state = jax.jit(lambda: small_state(model, sgd, hyper), out_shardings=replicated(mesh))()
    blanks = [device_put(batch, batch_sharding(mesh)) for batch in data.blank_batches()]
    step = jax.jit(make_train_step(loss, sgd, constant_rate), out_shardings=replicated(mesh))
    step = compile_step(step, state, blanks)
    batches = data.train_batches(0, process=jax.process_index(), processes=jax.process_count())
    found = []
    for _ in range(3):
        batch = next(batches)
        assert len(batch["labels"]) * jax.process_count() == 4
        state, metrics = step(state, make_global_batch(batch, batch_sharding(mesh)))
        found.append(mean(jax.device_get(metrics)["loss"]))
    rows = (
        device_put({key: batch[key] for key in blanks[0]}, batch_sharding(mesh))
        for batch in data.eval_batches("validation")
    )
    return [*found, evaluate(make_eval_step(loss), state.params, rows)["loss"]]


if __name__ == "__main__":
    address, process, directory = sys.argv[1:]
    jax.distributed.initialize(address, num_processes=2, process_id=int(process))
    assert jax.process_count() == 2 and jax.local_device_count() == 1
    print(json.dumps(losses(directory)))
