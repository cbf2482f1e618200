"""What a search launches next, given its budget and the comparisons that are not settled.

The launches are made-up records; `tests/cli/test_tune.py` launches real ones.
"""

import itertools

import pytest

from tests import fake_framework
from tests.sample_records import vary_record
from xfbench.base.errors import UnavailableError
from xfbench.environments import environment
from xfbench.equality import certify
from xfbench.equality.verify import Verdict, Verifier
from xfbench.execution.launch import LaunchContext
from xfbench.model import adapter, certificate
from xfbench.model.certificate import batch_certified_fields
from xfbench.model.record import Conditions
from xfbench.session import Listener, Session
from xfbench.store.results_folder import Store
from xfbench.tuning import searching
from xfbench.tuning.halving import Rung, search_by_successive_halving
from xfbench.tuning.repeating import MAX_REPEATS
from xfbench.tuning.searching import SearchOptions, _SearchLauncher, find_and_confirm_best_setting
from xfbench.tuning.space import Space, split_work_allocator_affinity

SECONDS = 10.0  # duration of a launch
QUICK, SLOW = (0.5, 0.5, 0.5), (1.0, 1.0, 1.0)


@pytest.fixture
def build_launcher(record):
    """Return a function that builds a search launcher and the list of its progress lines.

    `steps(cell, number)` returns the step times in seconds of a cell's launch with that number.
    """

    def build(cells, steps, **options):
        quiet = {"load_before": 0.0, "load_after": 0.0, "steal_seconds": 0.0, "swap_bytes": 0}
        template = record(fields={"conditions": Conditions(**quiet, seconds=SECONDS)})

        class FakeSession:
            def __init__(self):
                self.lines = []
                self.say = self.lines.append

            def launch(self, requests):
                [request] = requests
                measurement = template.measurement.model_copy(
                    update={"step_seconds": steps(request.cell(), request.launch)}
                )
                yield vary_record(template, request=dict(request), measurement=measurement)

        session = FakeSession()
        space = Space(cells, cells[-1], ())
        return _SearchLauncher(space, SearchOptions(**options), session), session.lines

    return build


@pytest.fixture
def cells(cell):
    """Eight settings with one kernel; the last one is the default."""
    return tuple(cell(threads=threads, steps=3) for threads in range(1, 9))


def search_and_confirm(launches, cells):
    halved = search_by_successive_halving(cells, split_work_allocator_affinity, launches.run_rung)
    winner, *rivals = halved.finalists
    searched_count = len(launches.records)
    confirmed = launches.launch_finalists_until_settled(
        winner, [*dict.fromkeys([*rivals, cells[-1]])], halved
    )
    return halved, confirmed, launches.records[searched_count:]


def test_search_over_budget_still_confirms_the_winner(build_launcher, cells):
    options = {"min_launches": 2, "max_launches": 2, "budget_seconds": 13.2 * SECONDS}
    launches, lines = build_launcher(
        cells, lambda cell, _: QUICK if cell.threads == 1 else SLOW, **options
    )
    halved, confirmed, confirming = search_and_confirm(launches, cells)
    assert halved.ended_by_budget and launches.ended_by_budget
    assert len(launches.records) == 12 and len(confirming) == 4
    *searching_lines, note = lines[:-4]
    assert all(line.startswith("rung 1 of 2 · block 1 · ") for line in searching_lines)
    assert note.startswith("the budget is too small to confirm numpy · ")
    assert all(line.startswith("confirming · ") for line in lines[-4:])
    assert [cell.threads for cell in confirmed] == [1, 8]  # the winner and the default


def test_every_setting_is_tried_before_time_is_kept_for_the_confirmation(build_launcher, cells):
    launches, _ = build_launcher(cells, lambda *_: SLOW, budget_seconds=8.5 * SECONDS)
    halved, confirmed, confirming = search_and_confirm(launches, cells)
    assert not launches.untried and len(launches.records) == 8
    assert halved.ended_by_budget and confirmed == {} and not confirming


def test_budget_below_the_first_rung_says_what_the_search_still_needs(build_launcher, cells):
    launches, _ = build_launcher(cells, lambda *_: SLOW, budget_seconds=2.5 * SECONDS)
    search_by_successive_halving(cells, split_work_allocator_affinity, launches.run_rung)
    assert launches.ended_by_budget and len(launches.untried) == 6
    # 6 launches of the first rung, 3 x 2 of the second, 3 x 5 of the confirmation
    assert 27 * (SECONDS - 3) < launches.predict_remaining_seconds() < 27 * (SECONDS + 3)


def test_repeated_launches_say_why(build_launcher, cells):
    launches, lines = build_launcher(cells[:3], lambda *_: SLOW)
    launches.cores.decide_and_count_repeat = lambda record: record.request.threads == 2
    launches.run_rung(Rung(1, 3, 1, 0.25, 1), cells[:3])
    words = "(repeated: the cores lay apart)"
    assert [line.endswith(words) for line in lines] == [False] * 3 + [True] * MAX_REPEATS


def test_launches_of_the_confirmation_are_not_repeated(build_launcher, cells):
    """Its figures are those of `run`, which repeats no launch."""
    launches, _ = build_launcher(cells[:2], lambda *_: SLOW, min_launches=1, max_launches=1)
    launches.cores.decide_and_count_repeat = lambda record: True
    launches.launch_finalists_until_settled(
        cells[0],
        [cells[1]],
        search_by_successive_halving(cells[:2], split_work_allocator_affinity, launches.run_rung),
    )
    assert len(launches.records) == 2


def test_spoiled_launches_of_rungs_are_repeated_within_the_budget(build_launcher, cells):
    options = {"min_launches": 0, "max_launches": 1, "budget_seconds": 5.5 * SECONDS}
    launches, _ = build_launcher(cells[:3], lambda *_: SLOW, **options)
    launches.cores.decide_and_count_repeat = lambda record: True
    search_by_successive_halving(cells[:3], split_work_allocator_affinity, launches.run_rung)
    assert len(launches.records) == 5


def test_confirmation_launches_close_rivals_more_often(build_launcher, cells):
    """Which of the two quick settings is faster is unclear; the default is twice as slow."""
    drawn = itertools.cycle((0.4, 0.5, 0.6, 0.45, 0.55))

    def steps(cell, _):
        return (next(drawn),) * 3 if cell.threads <= 2 else SLOW

    launches, lines = build_launcher(cells, steps)
    _, confirmed, confirming = search_and_confirm(launches, cells)
    launch_counts = {
        cell: sum(record.request.cell() == cell for record in confirming) for cell in confirmed
    }
    slow_launches = [launch_counts[cell] for cell in confirmed if cell.threads > 2]
    assert slow_launches and {*slow_launches} == {5}
    [quick_launches] = {launch_counts[cell] for cell in confirmed if cell.threads <= 2}
    assert 5 < quick_launches < 20
    # A quarter of 20 launches of each of 8 settings; some take a bit longer.
    assert 40 <= len(launches.records) <= 46
    assert lines[-1].endswith("of the time of an exhaustive search: raise --launches")


def test_further_rungs_state_their_reason(build_launcher, cells):
    drawn = itertools.cycle((0.4, 0.7, 0.5, 0.65, 0.45, 0.6, 0.3))
    launches, lines = build_launcher(
        cells[:4], lambda cell, _: (next(drawn),) * 3, min_launches=1, max_launches=1
    )
    search_by_successive_halving(
        cells[:4], lambda cell: ("one kernel", cell.threads % 2), launches.run_rung
    )
    titles = list(dict.fromkeys(line.split(" · ")[0] for line in lines))
    assert titles[0] == "rung 1 of 1"
    assert titles[1] == "rung 2 (extra, because launches are noisy)"


def test_search_without_its_framework_reports_the_reason(cells, tmp_path):
    space = Space(cells, cells[-1], ())
    choices = SearchOptions(pythons={"reference": tmp_path / "python"})
    with pytest.raises(UnavailableError, match=f"{tmp_path}/python"):
        find_and_confirm_best_setting(space, choices, Store(tmp_path), Listener())


@pytest.mark.parametrize(
    ("usual", "window", "share", "expected"),
    [(20, 1, 0.25, 5), (3, 1, 0.25, 1), (1, 1, 0.25, 1), (20, 5, 0.5, 10), (20, 10, 0.25, 10)],
)
def test_short_launch_has_at_least_one_whole_window(cell, usual, window, share, expected):
    rung = Rung(1, 8, 1, share, 1)
    assert searching.shorten(cell(steps=usual, window=window), rung).steps == expected


def test_short_launch_is_shorter_in_steps_and_seconds_but_not_in_warmup(cell):
    full = cell(steps=20, min_seconds=5.0, min_warmup_seconds=1.0)
    short = searching.shorten(full, Rung(1, 8, 1, 0.25, 1))
    assert (short.steps, short.min_seconds, short.min_warmup_seconds) == (5, 1.25, 1.0)


@pytest.mark.parametrize(
    ("count", "default", "expected"),
    [
        (2, 0, 2 * 20),  # two settings need no search
        (2, None, 3 * 20),  # the default is outside the search space
        (3, 0, 3 + 4 * 3 + 3 * 20),  # one rung and four extra rungs
        (8, 7, 8 + 3 * 2 + 4 * 3 + 3 * 20),
    ],
)
def test_launch_limit_counts_rungs_and_confirmation(cell, count, default, expected):
    cells = tuple(cell(threads=threads) for threads in range(1, count + 1))
    usual = cell(threads=99) if default is None else cells[default]
    assert (
        searching.max_launches(Space(cells, usual, ()), SearchOptions(max_launches=20)) == expected
    )


def test_predicted_launch_time_grows_with_its_steps(record, cell):
    quiet = {"load_before": 0.0, "load_after": 0.0, "steal_seconds": 0.0, "swap_bytes": 0}
    conditions = Conditions(**quiet, seconds=10.0)
    short = record(steps=(0.5, 0.5, 9.0), fields={"conditions": conditions})  # three steps
    assert searching._predict_seconds_from_record(cell(steps=23), short) == 10 + 20 * 0.5
    assert searching._predict_seconds_from_record(cell(steps=3), short) == 10
    assert searching._predict_seconds_from_record(cell(steps=3, min_seconds=6.0), short) == 14.5


def test_seed_determines_the_order_in_each_block(build_launcher, cells):
    orders = {
        seed: [
            build_launcher(cells, None, seed=seed)[0]._shuffle(cells, block) for block in range(5)
        ]
        for seed in (0, 1)
    }
    assert all({*order} == {*cells} for order in orders[0])
    assert len({tuple(order) for order in orders[0]}) == 5
    assert orders[0] != orders[1]
    assert build_launcher(cells, None)[0]._shuffle(cells, 3) == orders[0][3]


def test_confirmation_uses_separate_blocks(build_launcher, cells):
    launches, _ = build_launcher(cells, lambda cell, _: QUICK if cell.threads == 1 else SLOW)
    halved, _, confirming = search_and_confirm(launches, cells)
    searching_records = launches.records[: -len(confirming)]
    assert max(record.request.launch for record in searching_records) == halved.blocks
    assert min(record.request.launch for record in confirming) == halved.blocks + 1


def test_finalists_with_a_wrong_batch_are_found(cells, tmp_path, monkeypatch):
    """A setting whose timed batch differs must not be named the best."""
    context = LaunchContext(Store(tmp_path))
    session = Session(context, Listener())

    def certify_requests(requests, to, *_, with_timed_batches):
        assert with_timed_batches
        to.wrong_batches[batch_certified_fields(requests[1])] = "at a batch of 4: first at conv2"
        return 0

    monkeypatch.setattr(certify, "certify_requests", certify_requests)
    wrong = searching._verify_batches_and_collect_wrong(cells[:3], session, SearchOptions())
    assert wrong == {cells[1]: "different at a batch of 4: first at conv2"}


def test_a_search_without_verification_uses_known_batch_certificates(
    fake_adapter, cell, tmp_path, monkeypatch
):
    """Without a clear difference, the default would win, which the cache knows to be wrong."""
    fake_adapter()
    monkeypatch.setenv("XFBENCH_HOME", str(fake_framework.make_cache(tmp_path / "cache")))
    odd = {"framework": "odd", "kernel": "plain"}
    right, wrong = cell(**odd, threads=1), cell(**odd, threads=2)
    described = environment.ensure_environment(adapter.load("odd"))

    def verify_batch_sizes(verifier, request, found, batch_sizes, seed):
        return {size: Verdict(request, "different", "wrong") for size in batch_sizes}

    monkeypatch.setattr(certify.timed_batch, "verify_batch_sizes", verify_batch_sizes)
    certify.store_verdict_unless_unsupported(Verdict(wrong.request(1), "equal"), described, 0)
    [*certify.certify_timed_batches(Verifier(), [wrong.request(1)], described, print)]
    space, store = Space((wrong, right), wrong, ()), Store(tmp_path / "results")
    choices = SearchOptions(min_launches=1, max_launches=1, verify=False)
    tuning = find_and_confirm_best_setting(space, choices, store, Listener())
    assert tuning.best.threads == 1
    assert len(certificate.read_certificates(store.folder)) == 2
