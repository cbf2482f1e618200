"""Which cells of a plan need no more launches, judged by earlier records."""

import pytest

from xfbench import stop_rule
from xfbench.model.plan import Plan
from xfbench.model.request import Protocol
from xfbench.planning.scheduling import launch_order

STEADY, NOISY = (0.1,) * 6, (0.1, 0.2, 0.1, 0.2, 0.1, 0.2)


@pytest.fixture
def make_plan(cell):
    """Return a function that builds a plan of two cells of each workload."""

    def build(workloads, **protocol):
        cells = [
            (cell(workload=name, threads=threads), Protocol(**protocol))
            for name in workloads
            for threads in (1, 2)
        ]
        return Plan(
            requests=tuple(launch_order(cells)),
            protocols=tuple(cells),
            pythons={},
            verify=True,
            strict=False,
            time_limit=60,
        )

    return build


@pytest.fixture
def make_records(record):
    """Return a function that makes a launch for each duration of a step, in seconds."""

    def build(step_seconds, **request):
        return [
            record((seconds,) * 3, launch, **request)
            for launch, seconds in enumerate(step_seconds, 1)
        ]

    return build


@pytest.mark.parametrize(
    ("seconds", "protocol", "is_left"),
    [
        (STEADY, {"precision": 0.02}, False),
        (STEADY[:4], {"precision": 0.02}, True),
        (NOISY, {"precision": 0.02}, True),
        (STEADY, {"least": 9, "most": 9, "precision": None}, True),
    ],
)
def test_a_table_is_left_out_if_its_cells_are_precise(
    make_plan, make_records, seconds, protocol, is_left
):
    plan = make_plan(["lenet", "convnet"], **protocol)
    records = [
        *make_records(STEADY, workload="lenet", threads=1),
        *make_records(seconds, workload="lenet", threads=2),
    ]
    remaining = stop_rule.leave_out_decided(plan, records)
    assert {each.workload for each in remaining.requests} == (
        {"lenet", "convnet"} if is_left else {"convnet"}
    )


def test_a_table_is_left_out_if_its_order_cannot_be_told(make_plan, make_records):
    plan = make_plan(["lenet"], least=3, most=20, precision=0.001, ranked=True)
    records = [*make_records(NOISY * 3, threads=1), *make_records(NOISY[::-1] * 3, threads=2)]
    assert not stop_rule.leave_out_decided(plan, records).requests
