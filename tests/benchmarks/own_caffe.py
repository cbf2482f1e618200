"""Caffe's own solver on the network as `xfbench workload export` writes it, for `versus.py`."""

import os
from pathlib import Path

import caffe

from xfbench.adapters.caffe import prototxt


def loops(workload, images, labels, threads):  # which its environment has set
    """Steps by name: one iteration of the solver, as `caffe train` does it."""
    folder = Path.cwd()
    net, solver = folder / "net.prototxt", folder / "solver.prototxt"
    net.write_text(prototxt.train_val(workload, len(labels)))
    solver.write_text(prototxt.solver(workload, str(net)))
    os.environ.setdefault("GLOG_minloglevel", "2")
    trained = caffe.SGDSolver(str(solver))
    trained.net.blobs["data"].data[...] = images
    trained.net.blobs["label"].data[...] = labels
    return {"the solver's own step": lambda: trained.step(1)}
