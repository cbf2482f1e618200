"""Caffe's inner product of n values against float64, by the BLAS that it is linked with.

Run by the interpreter of Caffe's environment; which libblas.so.3 is found first is which BLAS runs
(`xfbench run --framework caffe --kernel reference --dry-run` shows the variables).
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
        draw = np.random.default_rng(seed)
        data = draw.standard_normal((2, count)).astype(np.float32)
        weights = draw.standard_normal((10, count)).astype(np.float32)
        net.blobs["data"].data[...] = data
        net.params["sum"][0].data[...] = weights
        found = net.forward()["sum"]
        truth = data.astype(np.float64) @ weights.astype(np.float64).T
        errors.append(np.linalg.norm(found - truth) / np.linalg.norm(truth))
    print(f"{count:>7} values: relative error {np.median(errors):.1e}")
