"""References for ReFrame, and the key that its test builds."""

from tests.sample_records import SOFTWARE, UNKNOWN_CERTIFICATE, certify_records
from xfbench.analysis.leaderboard import build_tables
from xfbench.exchange.references import build_references
from xfbench.host.machine import describe_machine


def test_references_have_a_key_for_each_ranked_cell(record):
    fields = {"software": SOFTWARE, "machine": describe_machine()}
    launches = [
        record((0.1 / threads,) * 3, launch, threads=threads, fields=fields)
        for threads in (1, 2)
        for launch in (1, 2)
    ]
    ranked, certificates = certify_records(launches)
    unproven = record(threads=4, fields={**fields, "certificate": UNKNOWN_CERTIFICATE})
    references = build_references(build_tables([*ranked, unproven], certificates), "a:b")
    assert references == {
        "a:b": {
            "reference lenet numpy cpu float32 synthetic threads=1 batch=4": 40.0,
            "reference lenet numpy cpu float32 synthetic threads=2 batch=4": 80.0,
        }
    }


def test_key_has_the_settings_that_differ_from_their_defaults(record):
    launched = {"session": "s", "position": 3}
    request = record(threads=2).request.model_copy(update=launched)
    assert request.key == "reference lenet numpy cpu float32 synthetic threads=2 batch=4"
    changed = request.model_copy(update={"lars": 0.5, "allocator": "jemalloc"})
    assert changed.key == f"{request.key} lars=0.5 allocator=jemalloc"
