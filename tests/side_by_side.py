"""A framework of the tests' own: ranks that do as they are told, and have nothing to say."""

STRATEGY = "side by side"
TRAINER = """
import os
import numpy as np

class Trainer:
    def __init__(self, group): self.group, self.steps = group, 0
    def load(self, images, labels): return images
    def step(self, batch):
        assert len(batch) in (4, 2), len(batch)
        self.steps += 1
        sum(range(400000))
        after_step(self.group.rank, self.steps)
    def wait(self): return 1.0 + self.group.rank
    def loss(self, batch): return EXPECTED_LOSS
    def scores(self, batch): return np.zeros((len(batch), 10), np.float32)
    def gradients(self, batch): return {}
    def parameters(self): return {}
    def assign(self, parameters): pass
    def observed(self):
        known = {"framework_version": "1", "layout": "NCHW", "kernel": "plain"}
        return {**known, "kernel_evidence": []}

def after_step(rank, steps): pass

def build(network, solver, options, group):
    assert group.strategy == ("side by side" if group.size > 1 else "none")
    assert not os.path.exists(group.meeting)
    return Trainer(group)
"""


# How a rank may end in a step: what it does, and the status and words that this becomes.
DEATHS = {
    "by a signal": ("os.kill(os.getpid(), 9)", "crashed", "ended by SIGKILL"),
    "with a status": ("os._exit(7)", "crashed", "exit status 7"),
    "with words": ("raise RuntimeError('no more memory')", "failed", "no more memory"),
}
SLOW = "\nimport time\ndef after_step(rank, steps): time.sleep(0.5)\n"


def ends(rank, how):
    """Text after the trainer's own: a rank ends in its third step, and the others wait for it.

    As they would in a collective.
    """
    return f"""
import time
def after_step(rank, steps):
    if rank == {rank} and steps == 3:
        {DEATHS[how][0]}
    if rank != {rank} and steps == 3:
        time.sleep(600)
"""


def write(own_adapter, folder, train):
    """Make it the adapter `odd` below `folder`, with `train` after the trainer's own text."""
    own_adapter("odd", train)
    described = folder / "adapters" / "odd" / "adapter.toml"
    known = described.read_text()
    described.write_text(known.replace('["none"]', f'["none", "{STRATEGY}"]'))
