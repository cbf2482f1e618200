"""Caffe 1.0: max pooling over NaN leaves its index at -1, and the backward pass writes there.

Run with Caffe's interpreter. Prints the index that the layer stores for a window of NaN; this index
is the layer's second output.
"""

import tempfile

import caffe
import numpy as np

NET = """
layer { name: "data" type: "Input" top: "data"
        input_param { shape { dim: 1 dim: 1 dim: 2 dim: 2 } } }
layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" top: "mask"
        pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
"""

with tempfile.NamedTemporaryFile("w", suffix=".prototxt") as file:
    file.write(NET)
    file.flush()
    net = caffe.Net(file.name, caffe.TRAIN)
for value in (1.0, np.nan):
    net.blobs["data"].data[...] = value
    net.forward()
    print(value, "->", float(net.blobs["pool"].data), "index", float(net.blobs["mask"].data))
