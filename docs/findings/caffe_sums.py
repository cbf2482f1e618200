"""The error of Caffe's inner product of n values against float64, for the BLAS that it loads.

Run with the interpreter of Caffe's environment. The first libblas.so.3 on the library path is the
BLAS that runs. The variables are in the output of `xfbench run --framework caffe --kernel reference
--dry-run --show-commands`.
"""

import tempfile

import caffe
import numpy as np

LAYER = """
input: "data" input_shape {{ dim: 2 dim: {count} }}
layer {{ name: "sum" type: "InnerProduct" bottom: "data" top: "sum"
        inner_product_param {{ num_output: 10 bias_term: false }} }}
"""

for count in (9_216, 102_400, 802_816):
    with tempfile.NamedTemporaryFile("w", suffix=".prototxt") as file:
        file.write(LAYER.format(count=count))
        file.flush()
        net = caffe.Net(file.name, caffe.TRAIN)
    errors = []
    for seed in range(5):
        generator = np.random.default_rng(seed)
        data = generator.standard_normal((2, count)).astype(np.float32)
        weights = generator.standard_normal((10, count)).astype(np.float32)
        net.blobs["data"].data[...] = data
        net.params["sum"][0].data[...] = weights
        outputs = net.forward()["sum"]
        expected = data.astype(np.float64) @ weights.astype(np.float64).T
        errors.append(np.linalg.norm(outputs - expected) / np.linalg.norm(expected))
    print(f"{count:>7} values: relative error {np.median(errors):.1e}")
