"""Networks and loops as Keras' users write them, for `versus.py`: each a step that waits.

They start from values that Keras draws; the other frameworks' from those of the adapter.
"""

import numpy as np
import tensorflow as tf
from tensorflow import keras

from xfbench.adapters.tensorflow import train
from xfbench.workloads import layers as xl


def pad_input(x, layer, sizes):
    """`x` and Keras' word for the padding; what the word cannot say is a layer of its own."""
    kernel, stride, pad = layer.kernel, layer.stride, layer.pad
    counts = [layer.output_shape([(1, *sizes)])[axis] for axis in (1, 2)]
    pads = [
        (pad, max((count - 1) * stride + kernel - pad - size, 0) if is_pooling(layer) else pad)
        for count, size in zip(counts, sizes, strict=True)
    ]
    if not any(map(any, pads)):
        return x, "valid"
    totals = [max((-(-n // stride) - 1) * stride + kernel - n, 0) for n in sizes]
    if pads == [(total // 2, total - total // 2) for total in totals]:
        return x, "same"
    return keras.layers.ZeroPadding2D(pads)(x), "valid"


def is_pooling(layer):
    return isinstance(layer, xl.Pooling)


def build_lrn(layer):
    if layer.region == "across":
        half, alpha = layer.size // 2, layer.alpha / layer.size
        return lambda x: tf.nn.local_response_normalization(x, half, layer.k, alpha, layer.beta)
    window = ((layer.size, 1, "SAME"),)
    return lambda x: x / (layer.k + layer.alpha * tf.nn.avg_pool2d(x * x, *window[0])) ** layer.beta


def apply_convolution(layer, x, options):
    """One of groups is two on halves: a grouped one has no gradient on the CPU."""
    make = keras.layers.Conv2D
    if layer.groups == 1:
        return make(layer.channels, layer.kernel, layer.stride, **options)(x)
    channels_per_group = layer.channels // layer.groups
    parts = keras.ops.split(x, layer.groups, axis=-1)
    convolved = [
        make(channels_per_group, layer.kernel, layer.stride, **options)(part) for part in parts
    ]
    return keras.layers.Concatenate()(convolved)


def build_model(workload):
    """The functional model; its outputs are the scores of each head."""
    network, decay = workload.network, keras.regularizers.L2(workload.solver.weight_decay / 2)
    channels, height, width = network.input_shape
    values = {"data": keras.Input((height, width, channels))}
    start, heads = values["data"], []
    for layer in network.layers:
        inputs = [values[name] for name in layer.inputs]
        x, shape = inputs[0], network.input_shapes(layer)[0]
        if isinstance(layer, xl.SoftmaxLoss):
            heads.append(x)
        elif isinstance(layer, xl.Convolution):
            x, padding = pad_input(x, layer, shape[1:])
            options = {"use_bias": layer.bias, "kernel_regularizer": decay, "padding": padding}
            x = apply_convolution(layer, x, options)
        elif isinstance(layer, xl.InnerProduct):
            flat = keras.layers.Flatten()(x) if len(shape) == 3 else x
            x = keras.layers.Dense(layer.channels, kernel_regularizer=decay)(flat)
        elif is_pooling(layer):
            x, padding = pad_input(x, layer, shape[1:])
            keras_layers = keras.layers
            kind = (
                keras_layers.MaxPooling2D
                if layer.method == "max"
                else keras_layers.AveragePooling2D
            )
            x = kind(layer.kernel, layer.stride, padding)(x)
        elif isinstance(layer, xl.ReLU):
            x = keras.layers.ReLU()(x)
        elif isinstance(layer, xl.LRN):
            x = keras.layers.Lambda(build_lrn(layer))(x)
        elif isinstance(layer, xl.Dropout):
            x = keras.layers.Dropout(layer.ratio)(x)
        elif isinstance(layer, xl.BatchNorm):
            x = keras.layers.BatchNormalization(momentum=layer.momentum, epsilon=layer.eps)(x)
        elif isinstance(layer, xl.Concat):
            x = keras.layers.Concatenate()(inputs)
        else:
            x = keras.layers.Add()(inputs)
        values[layer.name] = x
    model = keras.Model(start, heads)
    assert sum(v.shape.num_elements() for v in model.trainable_variables) == network.learned_count
    return model


def loops(workload, images, labels, threads, group):
    """Steps by name: what `fit` runs for each batch, and a compiled function of one's own.

    Of several ranks the latter, in the MultiWorkerMirroredStrategy that the adapter has made: a
    process can have one.
    """
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    images = tf.constant(np.ascontiguousarray(images.transpose(0, 2, 3, 1)))
    labels = tf.constant(labels)
    if group.size > 1:
        strategy = train._create_multi_worker_strategy(group)
        return {
            "MultiWorkerMirroredStrategy": build_multi_worker_step(
                workload, images, labels, strategy
            )
        }
    return {
        "Keras, as fit does it": build_fit_step(workload, images, labels),
        "tf.function": build_function_step(workload, images, labels),
    }


def build_fit_step(workload, images, labels):
    model, heads = build_model(workload), head_weights(workload)
    model.compile(
        keras.optimizers.SGD(workload.solver.base_lr, workload.solver.momentum),
        [keras.losses.SparseCategoricalCrossentropy(from_logits=True) for _ in heads],
        loss_weights=heads,
    )
    batch = tf.data.Dataset.from_tensors((images, (labels,) * len(heads))).cache().repeat()
    model.make_train_function()
    batches = iter(batch.prefetch(2))

    def step():
        float(model.train_function(batches)["loss"])

    return step


def build_function_step(workload, images, labels):
    update = tf.function(build_update(workload, ranks=1))
    return lambda: float(update(images, labels))


def build_multi_worker_step(workload, images, labels, strategy):
    with strategy.scope():
        update = build_update(workload, strategy.num_replicas_in_sync)
    distributed_update = tf.function(lambda *batch: strategy.run(update, batch))
    return lambda: float(distributed_update(images, labels))


def build_update(workload, ranks):
    """A model and its optimizer, as a function of images and labels that gives the loss."""
    model, heads = build_model(workload), head_weights(workload)
    optimizer = keras.optimizers.SGD(workload.solver.base_lr, workload.solver.momentum)
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits

    def update(images, labels):
        with tf.GradientTape() as tape:
            scores = tf.nest.flatten(model(images, training=True))
            losses = [
                w * tf.reduce_mean(cross_entropy(labels, s))
                for w, s in zip(heads, scores, strict=True)
            ]
            loss = tf.add_n([*losses, *model.losses]) / ranks
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return update


def head_weights(workload):
    return [layer.weight for layer in workload.network.layers if isinstance(layer, xl.SoftmaxLoss)]
