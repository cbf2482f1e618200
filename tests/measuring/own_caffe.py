"""Caffe's own solver on the network as `xfbench workload export` writes it, for `versus.py`."""

import os
from pathlib import Path

import caffe

from xfbench.adapters.caffe import prototxt
from xfbench.workloads.initial import initial_parameters

KINDS = {"weight": 0, "bias": 1, "gamma": 0, "beta": 1}


def loops(workload, images, labels, threads, group):  # its environment has set the threads
    """Steps by name: one iteration of the solver, as `caffe train` does it.

    On several ranks each gradient is added up by MPI before the update: Caffe has nothing of its
    own for that on CPUs, and this is what one would write.
    """
    folder = Path.cwd()
    net, solver = folder / "net.prototxt", folder / "solver.prototxt"
    net.write_text(prototxt.train_val(workload, len(labels)))
    solver.write_text(prototxt.solver(workload, str(net)))
    os.environ.setdefault("GLOG_minloglevel", "2")
    caffe_solver = caffe.SGDSolver(str(solver))
    for name, value in initial_parameters(workload.network, 0).items():
        layer, _, kind = name.rpartition("/")
        if kind in KINDS:  # averages start from 0 as they are
            caffe_layer = layer if kind in ("weight", "bias") else prototxt.scale_name(layer)
            caffe_solver.net.params[caffe_layer][KINDS[kind]].data[...] = value
    caffe_solver.net.blobs["data"].data[...] = images
    caffe_solver.net.blobs["label"].data[...] = labels
    if group.size > 1:
        from mpi4py import MPI

        def reduce_gradients():
            for blobs in caffe_solver.net.params.values():
                for blob in blobs:
                    MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, blob.diff)
                    blob.diff[...] /= group.size

        caffe_solver.add_callback(lambda: None, reduce_gradients)
        return {"the solver's step, MPI_Allreduce": lambda: caffe_solver.step(1)}
    return {"the solver's own step": lambda: caffe_solver.step(1)}
