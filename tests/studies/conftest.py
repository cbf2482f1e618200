"""Records of one machine and one software, as if somebody had run a study."""

import pytest

from tests.model.test_certificate import SOFTWARE
from xfbench.base import digests
from xfbench.host.machine import describe
from xfbench.model.certificate import Certificate
from xfbench.model.record import Epoch
from xfbench.planning import experiment
from xfbench.studies import answer


@pytest.fixture
def study():
    """A function that makes a study of one matrix and one analysis."""

    def make(analysis, matrix=None, **fields):
        own = {"framework": ["reference"], "workload": ["lenet"], "batch_size": [4]}
        own |= {"steps": 3, "warmup": 1, "data": ["synthetic"], **(matrix or {})}
        return experiment.Experiment.model_validate(
            {
                "name": "mine",
                "title": "t",
                "question": "q?",
                "matrix": [own],
                "analysis": [analysis],
                **fields,
            }
        )

    return make


@pytest.fixture
def launched(record):
    """A function that makes launches of one cell with these seconds per step."""

    def make(*seconds, fields=None, **request):
        own = {"software": SOFTWARE, "machine": describe(), **(fields or {})}
        return [
            record(steps=(one,) * 3, launch=number, fields=own, **request)
            for number, one in enumerate(seconds, 1)
        ]

    return make


@pytest.fixture
def trained(record, cell):
    """A function that makes a launch with these test losses and accuracies, epoch by epoch."""

    def make(losses, seconds=1.0, launch=1, accuracy=0.9, step=0.1, **request):
        epochs = tuple(
            Epoch(epoch=n, seconds=seconds, train_loss=loss, test_loss=loss, test_accuracy=accuracy)
            for n, loss in enumerate(losses, 1)
        )
        own = {"software": SOFTWARE, "machine": describe(), "learning": epochs}
        asked = {"steps": None, "epochs": len(losses), "data": "digits", **request}
        own["request"] = cell(**asked).request(launch)
        own["cell"] = digests.of_json(own["request"].cell_fields())
        return record(steps=(step,) * 3, fields=own)

    return make


@pytest.fixture
def answered():
    """A function: a study's answer over records."""

    def of(made, records, certificates: dict[str, Certificate | str] | None = None):
        return answer.answer_study(made, "laptop", records, certificates or {})

    return of


@pytest.fixture
def found(answered):
    """A function: the one finding of a study over records."""

    def of(made, records, certificates: dict[str, Certificate | str] | None = None):
        [finding] = answered(made, records, certificates).findings
        return finding

    return of
