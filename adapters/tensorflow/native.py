"""Rank detection by TensorFlow itself, without xfbench's help."""

from __future__ import annotations

import tensorflow as tf

# The Slurm resolver refuses more ranks than GPUs, so this claims many. No GPU is used here.
_GPUS = {"gpus_per_node": 64, "gpus_per_task": 1, "auto_set_gpu": False}


def join_and_count_ranks() -> int:
    """Join the group of ranks that TensorFlow finds, and return its number of ranks.

    TensorFlow reads Slurm's variables if they are set. Otherwise it reads `TF_CONFIG`.
    """
    resolvers = tf.distribute.cluster_resolver
    try:
        resolver = resolvers.SlurmClusterResolver(**_GPUS)
    except (KeyError, RuntimeError):  # not under Slurm
        resolver = resolvers.TFConfigClusterResolver()
    strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    return int(strategy.num_replicas_in_sync)
