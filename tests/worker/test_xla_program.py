"""Kernels are named as in the text of a program that XLA compiled for a GPU."""

from xfbench.worker import xla_program

CALL = "(f32[8,8]{1,0}, u8[0]{0}) custom-call(a, b), custom_call_target="
ON_GPU = f"""
ENTRY main {{
  c0 = {CALL}"__cudnn$convForward", \
backend_config={{"algorithm":{{"algo_id":"28","math_type":"DEFAULT_MATH"}}}}
  c1 = {CALL}"__cudnn$convBackwardFilter", \
backend_config={{"algorithm":{{"math_type":"TENSOR_OP_MATH","algo_id":"47"}}}}
  c2 = {CALL}"__cudnn$convBackwardFilter", \
backend_config={{"algorithm":{{"math_type":"TENSOR_OP_MATH","algo_id":"47"}}}}
  g0 = {CALL}"__cublas$lt$matmul", backend_config={{"algorithm":{{"algo_id":"3"}}}}
  t0 = f32[8,8]{{1,0}} fusion(a, b), kind=kCustom, backend_config={{"kind":"__triton_gemm"}}
  f0 = f32[8,8]{{1,0}} fusion(a, b), kind=kLoop, calls=add
}}
"""
ON_CPU = """
ENTRY main {
  c0 = f32[8,8]{1,0} convolution(a, b), window={size=3x3}
  d0 = f32[8,8]{1,0} dot(a, b)
  f0 = f32[8,8]{1,0} fusion(a, b), kind=kLoop, calls=add
}
"""


def test_library_calls_and_engines_of_a_program_for_a_gpu_are_counted():
    assert xla_program.describe_kernels(ON_GPU) == [
        "the step that XLA compiled contains fusion ×2, __cublas$lt$matmul ×1, "
        "__cudnn$convBackwardFilter ×2, __cudnn$convForward ×1, __triton_gemm ×1",
        "engines of cuDNN's convolutions: 28 (DEFAULT_MATH) ×1, 47 (TENSOR_OP_MATH) ×2",
    ]


def test_operations_of_a_program_for_a_cpu_are_counted():
    assert xla_program.describe_kernels(ON_CPU) == [
        "the step that XLA compiled contains convolution ×1, dot ×1, fusion ×1"
    ]
