"""The Transformer: pure functions first, then the Flax modules that hold their parameters.

Read in this order: `shapes` (the letters), `masks`, `attention`, `multi_head`, `positions`, `normalization`,
`feed_forward`, `dropout`, `embedding`, `components`, `block`, `cache`, `stack`, then the two models `transformer` and
`language_model`. Nothing here reads files, keeps state, or knows of training.
"""
