"""How text comes out of a model: pure functions over a step function (cache, token) -> (cache, logits)."""
