"""Short runs of the command beside programs of a site, and what they leave."""

import json
import os
import subprocess
import sys

RUN = ["run", "--framework=reference", "--workload=lenet", "--batch-size=2", "--steps=2"]
RUN += ["--data=synthetic", "--launches=1", "--no-verify"]


def run_command(*words, prefix=(), **variables):
    """Run the command as a process; `prefix` has the words of a program that starts it."""
    return subprocess.run(
        [*map(str, prefix), sys.executable, "-m", "xfbench", *map(str, words)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def read_records(results):
    return [json.loads(file.read_text()) for file in (results / "records").rglob("*.json")]


def read_launch_variables(results):
    [command] = [json.loads(file.read_text()) for file in results.rglob("command.json")]
    words = [word.partition("=")[::2] for word in command["argv"] if "=" in word]
    return {**command["environment"], **dict(words)}
