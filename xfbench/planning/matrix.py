"""A matrix: lists of settings from a file or the command line, combined into cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator

from xfbench.model import settings
from xfbench.model.request import SOLVER
from xfbench.planning.matrix_settings import MatrixSettings
from xfbench.planning.study_form import BatchSearch, Size, as_list


class Matrix(MatrixSettings):
    """Lists of settings. Every combination of their values is a cell.

    None stands for the default of the workload or of the host. These are the settings that only
    studies have, or that have more values there:

    - `size`: the sizes of the study that include this matrix; empty: all sizes.
    - `threads`: threads per rank. "powers" stands for the number of cores available to a rank, and
      for all powers of two below it.
    - `batch_size`: a list, or a search (`BatchSearch`). The cells of a search have its first batch
      size.
    - `probe`: tests of HPC support that replace the measurement (see `Cell`).
    """

    size: Annotated[Sequence[Size], BeforeValidator(as_list)] = ()
    probe: Annotated[Sequence[str], BeforeValidator(as_list)] | None = None

    @property
    def solver_settings(self) -> dict[str, Sequence[Any] | None]:
        """Return the lists of solver settings by the name of the cell's field.

        None in place of a list stands for the workload's own setting.
        """
        return {
            setting.cell_field: getattr(self, setting.name)
            for setting in settings.SETTINGS
            if setting.cell_field in SOLVER
        }

    @property
    def batch_sizes(self) -> Sequence[int] | None:
        """Return the batch sizes. If `batch_size` is a search, return only its first batch size."""
        return (
            [self.batch_size.start] if isinstance(self.batch_size, BatchSearch) else self.batch_size
        )
