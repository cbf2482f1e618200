"""The trainer of TensorFlow: a step is one `tf.function`, channels last.

`graph.py` defines the layers. Mixed precision is implemented here. It keeps parameters in float32.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from xfbench.adapters.tensorflow import checkpoint, device, graph, profile, update
from xfbench.adapters.tensorflow.exchange import ParameterServer
from xfbench.worker import distributed, mixed, scopes
from xfbench.worker.channels_last import Layout, parameter_layouts
from xfbench.worker.mpi import AllReduce
from xfbench.worker.protocol import LOSS_SCALE, Group, Options, Profile, Unsupported
from xfbench.workloads import layers as xl
from xfbench.workloads.solver import Solver

LARS = True


def build(network: xl.Network, solver: Solver, options: Options, group: Group) -> TensorFlowTrainer:
    """Return a trainer for `network`. Only the kernel "xla" compiles the step with XLA.

    Raises Unavailable if `options.device` is "cuda" and TensorFlow finds no NVIDIA device. Raises
    Unsupported for the kernel "xla" with several ranks, and if the GPU does not compute in
    `options.precision`.
    """
    gpu = device.choose_device(options.device, group.rank)
    device.require_precision(gpu, options.precision)
    device.set_product_precision(options.precision)
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    tf.random.set_seed(options.seed)
    if group.size > 1 and options.kernel == "xla":
        raise Unsupported("kernel xla needs a single rank: XLA cannot compile the exchange")
    return TensorFlowTrainer(network, solver, options, group)


@lru_cache(maxsize=None)
def _create_multi_worker_strategy(group: Group) -> Any:
    """Return the strategy that connects the ranks. It is created once in a process."""
    cluster = tf.train.ClusterSpec({"worker": distributed.exchange_rank_addresses(group)})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type="worker", task_id=group.rank, rpc_layer="grpc"
    )
    return tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=resolver)


class TensorFlowTrainer:
    """See `xfbench.worker.protocol.Trainer`."""

    channels_last = True
    thread_safe_load = True  # `load` copies its input

    def __init__(self, network: xl.Network, solver: Solver, options: Options, group: Group) -> None:
        self.network, self.solver, self.options = network, solver, options
        self.strategy: Any = (
            _create_multi_worker_strategy(group) if group.strategy == "mirrored" else None
        )
        size = group.options.get("bucket_size", "auto")
        self.packs = tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=0 if size == "auto" else size
        )
        self.joined: Any = AllReduce(group) if group.strategy == "mpi" else None
        self.dtype = tf.float64 if options.precision == "float64" else tf.float32
        # The dtype of values between layers and of operands of products.
        short = options.precision in mixed.PRECISIONS
        self.passed = tf.as_dtype(options.precision) if short else self.dtype
        self.loss_scale = LOSS_SCALE if options.precision == "float16" else None
        self.layouts = parameter_layouts(network)
        self.places = scopes.layer_index_by_parameter(network)
        self.variables = {name: self._zeros(layout) for name, layout in self.layouts.items()}
        self.learned = [name for name, p in network.parameters.items() if p.learned]
        self.velocities = {name: self._zeros(self.layouts[name]) for name in self.learned}
        self.server: Any = None
        self.exchanged: list[str] = []
        if group.strategy == "parameter_server":
            parameters = {name: network.parameters[name] for name in self.learned}
            shapes = {name: self.layouts[name].stored for name in self.learned}
            self.server = ParameterServer(group, solver, parameters, shapes, self.dtype)
        self._compile()
        self.iteration = 0
        self.last_loss = tf.zeros(())
        self.operations: Counter[str] = Counter()
        self.on_gpu: Counter[str] = Counter()
        self.convolution_layouts: set[str] = set()

    def load(self, images: np.ndarray, labels: np.ndarray) -> tuple[Any, Any]:
        channels_last = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
        return tf.cast(channels_last, self.dtype), tf.convert_to_tensor(labels)

    def step(self, batch: tuple[Any, Any]) -> None:
        rate = tf.constant(self.solver.learning_rate(self.iteration), self.dtype)
        if self.iteration == 0:
            context.context().enable_graph_collection()
        self.last_loss = (
            self._update_at_servers(batch) if self.server else self._train(*batch, rate)
        )
        if self.iteration == 0:
            metadata = context.context().export_run_metadata()
            context.context().disable_graph_collection()
            nodes = [node for part in metadata.partition_graphs for node in part.node]
            self.operations = Counter(node.op for node in nodes)
            self.on_gpu = Counter(node.op for node in nodes if "GPU" in node.device)
            self.convolution_layouts = graph.find_convolution_layouts(nodes)
        self.iteration += 1

    def wait_for_loss(self) -> float:
        return float(self.last_loss)

    def test_loss(self, batch: tuple[Any, Any]) -> float:
        return float(self._test(*batch)[0])

    def test_scores(self, batch: tuple[Any, Any]) -> np.ndarray:
        return self._host(self._test(*batch)[1])

    def gradients(self, batch: tuple[Any, Any]) -> dict[str, np.ndarray]:
        _, gradients = self._differentiate(*batch)
        return {
            name: self.layouts[name].to_canonical_layout(g.numpy()) for name, g in gradients.items()
        }

    def layer_outputs(self, batch: tuple[Any, Any]) -> dict[str, np.ndarray]:
        _, values, _ = self._loss_outputs_and_averages(*batch, training=True)
        arrays = {name: self._host(value) for name, value in values.items()}
        return {n: v.transpose(0, 3, 1, 2) if v.ndim == 4 else v for n, v in arrays.items()}

    def parameters(self) -> dict[str, np.ndarray]:
        return {
            name: self.layouts[name].to_canonical_layout(variable.numpy())
            for name, variable in self.variables.items()
        }

    def assign(self, parameters: dict[str, np.ndarray]) -> None:
        for name, variable in self.variables.items():
            variable.assign(self.layouts[name].to_framework_layout(parameters[name]))

    def restart_peak_device_memory(self) -> None:
        if self.options.device == "cuda":
            tf.config.experimental.reset_memory_stats("GPU:0")

    def peak_device_memory(self) -> dict[str, int | None]:
        if self.options.device != "cuda":
            return {}
        # The rank sees only its own GPU.
        return {"peak_device_bytes": tf.config.experimental.get_memory_info("GPU:0")["peak"]}

    def disable_sync(self) -> None:
        self.exchanged = (
            [self.server.describe_rank_share_of_updates()]
            if self.server
            else self._describe_collectives()
        )
        self.strategy = self.joined = self.server = None
        self._compile()

    def save(self, folder: Path) -> None:
        checkpoint.save(self, folder)

    def restore(self, folder: Path) -> None:
        checkpoint.restore(self, folder)

    def profile(
        self, batch: tuple[Any, Any], run_steps: Callable[[], float], clock: Callable[[], float]
    ) -> Profile:
        if self.options.device != "cpu":
            raise Unsupported("profiles of TensorFlow on a GPU are not supported yet")
        self.step(batch)  # traces the step again if `disable_sync` was called
        self.wait_for_loss()
        xla = self.options.kernel == "xla"
        return profile.profile(
            self.network, run_steps, (lambda: self._step_program_text(batch)) if xla else None
        )

    def runtime_info(self) -> dict[str, Any]:
        rewritten = {op: n for op, n in sorted(self.operations.items()) if op.startswith("_Mkl")}
        if self.iteration == 0:
            kernel, evidence = self.options.kernel, "no step has run yet"
        elif not self.operations:
            kernel, evidence = "xla", "TensorFlow's executor ran no operation of the step"
        elif rewritten:
            shown = ", ".join(f"{op} ×{n}" for op, n in rewritten.items())
            kernel, evidence = "onednn", f"operations of the executed step: {shown}"
        elif self.on_gpu:
            shown = ", ".join(f"{op} ×{n}" for op, n in sorted(self.on_gpu.items()))
            kernel, evidence = "cudnn", f"operations of the executed step on a GPU: {shown}"
        else:
            kernel, evidence = "eigen", "the executed step contains no oneDNN operation"
        return {
            "framework_version": tf.__version__,
            # TensorFlow may choose another layout than the adapter's. XLA shows none.
            "layout": " and ".join(sorted(self.convolution_layouts)) or "NHWC",
            "precision": self._detect_precision(),
            "kernel": kernel,
            "kernel_evidence": [evidence],
            "pools": {"intra-op": tf.config.threading.get_intra_op_parallelism_threads()},
            "exchange": self.exchanged,
            "loss_scale": self.loss_scale,
        }

    def _detect_precision(self) -> str:
        single = self.passed == tf.float32
        return device.measure_product_precision(self.options) if single else self.passed.name

    def _step_program_text(self, batch: tuple[Any, Any]) -> str:
        """Return the text of the program that XLA compiles for a step on `batch`."""
        compiler_ir = self._train.experimental_get_compiler_ir(*batch, tf.constant(0.0, self.dtype))
        text: str = compiler_ir(stage="optimized_hlo")
        return text

    def _describe_collectives(self) -> list[str]:
        shown = {op: n for op, n in sorted(self.operations.items()) if op.startswith("Collective")}
        return [f"the executed step contains {op} ×{n}" for op, n in shown.items()]

    def _compile(self) -> None:
        xla = self.options.kernel == "xla"
        compiled = partial(tf.function, autograph=False, jit_compile=xla)
        step = self._loss_and_mean_gradients if self.server else self._train_step
        self._train = compiled(self._in_replica_context(step))
        self._test = compiled(self._test_loss_and_scores)
        self._differentiate = compiled(self._in_replica_context(self._loss_and_mean_gradients))

    def _in_replica_context(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function`, wrapped to run in the strategy's replica context.

        Ranks can all-reduce only in this context. Without a strategy, return `function` unchanged.
        """
        if not self.strategy:
            return function
        return lambda *args: self.strategy.run(function, args)

    def _host(self, value: Any) -> np.ndarray:
        array: np.ndarray = tf.cast(value, self.dtype).numpy()
        return array

    def _zeros(self, layout: Layout) -> Any:
        return tf.Variable(tf.zeros(layout.stored, self.dtype))

    def _loss_outputs_and_averages(
        self, images: Any, labels: Any, training: bool
    ) -> tuple[Any, Any, graph.AverageUpdates]:
        """Return (weighted loss, outputs by layer name, updates of the running averages).

        The outputs include "data" and exclude those of loss layers.
        """
        values: dict[str, Any] = {"data": images}
        losses: list[Any] = []
        average_updates: graph.AverageUpdates = []
        dropout = training and self.options.dropout == "random"
        for number, layer in enumerate(self.network.layers):
            inputs = [values[name] for name in layer.inputs]
            kinds = layer.parameters(self.network.input_shapes(layer))
            parts = {kind: self.variables[f"{layer.name}/{kind}"] for kind in kinds}
            with tf.name_scope(scopes.layer_scope(number)):
                if self.passed != self.dtype:
                    casts = [partial(tf.cast, dtype=kind) for kind in (self.passed, self.dtype)]
                    inputs, parts = mixed.cast_inputs_and_parameters(layer, inputs, parts, *casts)
                if isinstance(layer, xl.SoftmaxLoss):
                    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, inputs[0])
                    losses.append(layer.weight * tf.reduce_mean(each))
                elif isinstance(layer, xl.BatchNorm):
                    values[layer.name], averages = graph.batch_norm_and_averages(
                        layer, inputs[0], parts, training
                    )
                    average_updates += averages
                else:
                    values[layer.name] = graph.output(layer, inputs, parts, dropout)
                if layer.name in values:
                    values[layer.name] = tf.cast(values[layer.name], self.passed)
        return tf.add_n(losses), values, average_updates

    def _loss_and_mean_gradients(self, images: Any, labels: Any) -> tuple[Any, dict[str, Any]]:
        learned = {name: self.variables[name] for name in self.learned}
        with tf.GradientTape() as tape:
            loss, _, average_updates = self._loss_outputs_and_averages(
                images, labels, training=True
            )
            scaled = loss * self.loss_scale if self.loss_scale else loss
        gradients = tape.gradient(scaled, learned)
        if self.loss_scale:
            gradients = {name: gradient / self.loss_scale for name, gradient in gradients.items()}
        if self.strategy:
            replica = tf.distribute.get_replica_context()
            joined = replica.all_reduce(
                tf.distribute.ReduceOp.MEAN, list(gradients.values()), self.packs
            )
            gradients = dict(zip(gradients, joined))
        if self.joined:
            means = tf.numpy_function(
                self._average_over_ranks, list(gradients.values()), [self.dtype] * len(gradients)
            )
            for name, mean in zip(gradients, means):
                mean.set_shape(self.variables[name].shape)
            gradients = dict(zip(gradients, means))
        for average, value in average_updates:
            average.assign(value)
        return loss, gradients

    def _average_over_ranks(self, *gradients: np.ndarray) -> list[np.ndarray]:
        """Return the means of `gradients` over all ranks, by MPI.

        The gradients are copied first, because they share TensorFlow's memory.
        """
        arrays = [np.array(gradient) for gradient in gradients]
        self.joined.average_in_place(arrays)
        return arrays

    def _train_step(self, images: Any, labels: Any, rate: Any) -> Any:
        loss, gradients = self._loss_and_mean_gradients(images, labels)
        for name, gradient in gradients.items():
            variables = self.variables[name], self.velocities[name]
            with tf.name_scope(scopes.update_scope(self.places[name])):
                update.update_parameter(
                    self.solver, self.network.parameters[name], *variables, rate, gradient
                )
        return loss

    def _update_at_servers(self, batch: tuple[Any, Any]) -> Any:
        variables = [self.variables[name] for name in self.learned]
        if self.iteration == 0:
            self.server.initialize_weights([variable.numpy() for variable in variables])
        loss, gradients = self._train(*batch)
        weights = self.server.update([gradients[name].numpy() for name in self.learned])
        for variable, weight in zip(variables, weights):
            variable.assign(weight)
        return loss

    def _test_loss_and_scores(self, images: Any, labels: Any) -> tuple[Any, Any]:
        loss, values, _ = self._loss_outputs_and_averages(images, labels, training=False)
        return loss, values[self.network.scores_layer]
