"""What a slip is told: the nearest name, else all there are."""

from xfbench import errors


def test_the_nearest_name_is_offered_else_all_else_that_there_are_none():
    assert str(errors.unknown("module", "caffee", ["caffe", "gcc"])).endswith("did you mean caffe?")
    assert str(errors.unknown("module", "zlib", ["gcc", "caffe"])).endswith(
        "unknown module 'zlib': there are: caffe, gcc"
    )
    assert str(errors.unknown("module", "zlib", [])).endswith("there are none")
