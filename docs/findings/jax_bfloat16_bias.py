"""JAX on CPUs: the gradient of a bias is summed in bfloat16, unlike `jnp.sum`.

Run it with an interpreter that has JAX: `python jax_bfloat16_bias.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np

CHANNELS, SIDE = 20, 24


def relative_error(computed: jax.Array, exact: np.ndarray) -> float:
    """Return the largest error, relative to the largest exact value."""
    return float(np.abs(np.asarray(computed, np.float64) - exact).max() / np.abs(exact).max())


print("JAX", jax.__version__)
for images in (2, 16, 64, 128):
    values = np.random.default_rng(0).normal(0.2, 1, (images, CHANNELS, SIDE, SIDE))
    slope = jnp.asarray(values, jnp.bfloat16)
    exact = np.asarray(slope, np.float64).sum((0, 2, 3))

    def add_bias(bias: jax.Array, like: jax.Array = slope) -> jax.Array:
        """Add a bias of each channel to an image of zeros."""
        return jnp.zeros_like(like) + bias[None, :, None, None]

    bias = jnp.zeros(CHANNELS, jnp.bfloat16)
    [gradient] = jax.jit(lambda bias, slope: jax.vjp(add_bias, bias)[1](slope))(bias, slope)
    plain = jax.jit(lambda slope: slope.sum((0, 2, 3)))(slope)
    print(
        f"{images} images: gradient off by {relative_error(gradient, exact):.1%}, "
        f"plain sum off by {relative_error(plain, exact):.1%}"
    )
