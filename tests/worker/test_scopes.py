"""Operations told by their scopes: TensorFlow's names, JAX's names, and XLA's programs."""

import pytest

from xfbench.worker import scopes
from xfbench.workloads import workloads

PROGRAM = """HloModule jit_train, is_scheduled=true

%fused_computation.1 (param_0.1: f32[], param_1.1: f32[]) -> f32[] {
  %param_0.1 = f32[] parameter(0)
  %param_1.1 = f32[] parameter(1)
  ROOT %convolution.3 = f32[] convolution(%param_0.1, %param_1.1), window={size=8}
}

%fused_computation.2 (param_0.2: f32[], param_1.2: f32[]) -> f32[] {
  %param_0.2 = f32[] parameter(0)
  %param_1.2 = f32[] parameter(1)
  %mul.1 = f32[] multiply(%param_0.2, %param_1.2), metadata={op_name="jvp(xfbench.layer.0)/mul"}
  ROOT %max.1 = f32[] maximum(%mul.1, %param_1.2), metadata={op_name="jvp(xfbench.layer.1)/max"}
}

%iota_computation () -> s32[] {
  ROOT %iota.14 = s32[] iota(), iota_dimension=0
}

ENTRY %main.1 (Arg_0.1: f32[], Arg_1.1: f32[]) -> (f32[], f32[]) {
  %Arg_0.1 = f32[] parameter(0), metadata={op_name="values['conv1/weight']"}
  %Arg_1.1 = f32[] parameter(1)
  %wrapped_iota = s32[] fusion(), kind=kLoop, calls=%iota_computation
  %max_fusion = f32[] fusion(%Arg_0.1, %Arg_1.1), kind=kLoop, calls=%fused_computation.2
  %scatter.1 = f32[] scatter(%max_fusion, %wrapped_iota), metadata={op_name="SCATTER"}
  %conv_fusion = f32[] fusion(%scatter.1, %Arg_1.1), kind=kCustom, calls=%fused_computation.1
  %subtract.1 = f32[] subtract(%Arg_0.1, %conv_fusion), metadata={op_name="UPDATE"}
  %custom-call.7 = f32[] custom-call(%Arg_1.1), custom_call_target="nothing"
  ROOT %tuple = (f32[], f32[]) tuple(%subtract.1, %custom-call.7)
}
"""
PROGRAM = PROGRAM.replace("SCATTER", "jit(train)/transpose(jvp(xfbench.layer.1))/scatter")
PROGRAM = PROGRAM.replace("UPDATE", "jit(train)/xfbench.update.0/sub")


def test_program_instructions_keep_their_scope():
    scope_by_instruction = scopes.scope_by_instruction(PROGRAM)
    assert scopes.layer_index_of_scope(scope_by_instruction["scatter.1"]) == 1
    assert scope_by_instruction["subtract.1"].endswith("xfbench.update.0/sub")


def test_fused_instruction_has_the_scope_of_its_last_operation():
    assert scopes.layer_index_of_scope(scopes.scope_by_instruction(PROGRAM)["max_fusion"]) == 1


def test_instruction_without_scope_takes_the_scope_of_its_reader():
    """A gradient that the update of layer 0 reads is that layer's, going backward."""
    scope_by_instruction = scopes.scope_by_instruction(PROGRAM)
    scope_seconds = scopes.ScopeSeconds(["conv", "relu"])
    scope_seconds.add(scope_by_instruction["conv_fusion"], 2.0)
    scope_seconds.add(scope_by_instruction["wrapped_iota"], 3.0)
    profile = scope_seconds.profile("x")
    assert (profile.forward, profile.backward) == ({}, {"conv": 2.0, "relu": 3.0})


def test_instruction_without_a_scoped_reader_has_no_scope():
    assert "custom-call.7" not in scopes.scope_by_instruction(PROGRAM)


@pytest.mark.parametrize(
    ("scope", "expected_place"),
    [
        ("xfbench.layer.1/Relu", ("forward", "relu")),
        ("gradient_tape/xfbench.layer.1/ReluGrad", ("backward", "relu")),
        ("jit(train)/jvp(xfbench.layer.0)/conv_general_dilated", ("forward", "conv")),
        ("jit(train)/transpose(jvp(xfbench.layer.0))/conv", ("backward", "conv")),
    ],
)
def test_scope_name_distinguishes_forward_and_backward(scope, expected_place):
    scope_seconds = scopes.ScopeSeconds(["conv", "relu"])
    scope_seconds.add(scope, 1.0)
    phase, layer = expected_place
    assert getattr(scope_seconds.profile("x"), phase) == {layer: 1.0}


def test_update_and_other_time_are_summed_separately():
    scope_seconds = scopes.ScopeSeconds(["conv"])
    scope_seconds.add("xfbench.update.0/AssignSubVariableOp", 1.0)
    scope_seconds.add("some/other", 2.0)
    scope_seconds.add("", 4.0)
    profile = scope_seconds.profile("x")
    assert (profile.update, profile.unattributed, profile.forward, profile.backward) == (
        1.0,
        6.0,
        {},
        {},
    )


def test_layer_10_is_not_confused_with_layer_1():
    assert scopes.layer_index_of_scope(scopes.layer_scope(10)) == 10
    network = workloads()["alexnet"].network
    layer_indices = scopes.layer_index_by_parameter(network)
    assert network.layers[layer_indices["conv1/weight"]].name == "conv1"
    assert network.layers[layer_indices["fc8/bias"]].name == "fc8"
