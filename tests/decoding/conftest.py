"""What the tests of decoding share."""

import jax

jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)  # many small programs: keep them all
