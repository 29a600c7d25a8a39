"""Settings of every test: two simulated devices, so that meshes are real."""

import jax

jax.config.update('jax_num_cpu_devices', 2)
