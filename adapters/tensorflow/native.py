"""How many ranks TensorFlow finds by itself: told nothing but what their start command tells."""

from __future__ import annotations

import tensorflow as tf

# Its way by Slurm deals out GPUs, and refuses ranks for which there are too few: nobody looks.
_GPUS = {"gpus_per_node": 64, "gpus_per_task": 1, "auto_set_gpu": False}


def ranks() -> int:
    """As many as it joins, by Slurm's variables where they are there."""
    resolvers = tf.distribute.cluster_resolver
    try:
        resolver = resolvers.SlurmClusterResolver(**_GPUS)
    except (KeyError, RuntimeError):  # not under Slurm
        resolver = resolvers.TFConfigClusterResolver()
    strategy = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
    return int(strategy.num_replicas_in_sync)
