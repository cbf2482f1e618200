"""The report opens in a real browser, and its first screen names the fastest setting."""

import re


def test_the_first_screen_names_the_fastest_setting(open_board):
    summary = open_board().get_by_role("article")
    for text in (
        "torch with onednn on 2 threads is fastest",
        re.compile("1.[56][0-9]{2}.* images/s"),
        "Rank 1 is certain",
        "95 % interval",
        "5 launches (enough for a claim)",
        "is verified",
        "--framework torch",
        "--launches",
    ):
        box = summary.get_by_text(text).first.bounding_box()
        assert box and box["y"] + box["height"] < 800, text
