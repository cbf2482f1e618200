"""Parameters in the layout of frameworks whose channels come last."""

import numpy as np
import pytest

from xfbench.worker.channels_last import parameter_layouts
from xfbench.workloads import workloads

NETWORK = workloads()["lenet"].network
SHAPES = {
    "conv1/weight": (5, 5, 1, 20),
    "conv1/bias": (20,),
    "conv2/weight": (5, 5, 20, 50),
    "conv2/bias": (50,),
    "ip1/weight": (800, 500),
    "ip1/bias": (500,),
    "ip2/weight": (500, 10),
    "ip2/bias": (10,),
}


def number_elements(shape):
    return np.arange(np.prod(shape), dtype=np.float64).reshape(shape)


@pytest.fixture(scope="module")
def parameters():
    """Each parameter of LeNet in both layouts, all its values different."""
    layouts = {}
    for name, layout in parameter_layouts(NETWORK).items():
        canonical = number_elements(layout.canonical)
        layouts[name] = canonical, layout.to_framework_layout(canonical)
    return layouts


def test_every_parameter_has_the_shape_of_channels_last(parameters):
    assert {name: array.shape for name, (_, array) in parameters.items()} == SHAPES


@pytest.mark.parametrize("name", SHAPES)
def test_restoring_a_stored_parameter_gives_it_back(name, parameters):
    canonical, array = parameters[name]
    restored = parameter_layouts(NETWORK)[name].to_canonical_layout(array)
    assert np.array_equal(restored, canonical) and restored.flags.c_contiguous


def test_a_convolution_weight_is_transposed(parameters):
    canonical, array = parameters["conv2/weight"]
    assert array[4, 3, 2, 1] == canonical[1, 2, 4, 3]


def test_an_inner_product_reads_pixels_with_channels_last(parameters):
    images = number_elements((2, 50, 4, 4))
    channels_last = images.transpose(0, 2, 3, 1)
    canonical, array = parameters["ip1/weight"]
    product = images.reshape(2, -1) @ canonical.reshape(500, -1).T
    assert np.allclose(channels_last.reshape(2, -1) @ array, product)


def test_an_inner_product_of_features_is_transposed(parameters):
    canonical, array = parameters["ip2/weight"]
    assert np.array_equal(array, canonical.T)
