"""Settings that every cell stores. Written by `make settings` from settings.py: do not edit."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class StoredSettings(BaseModel):
    """Fields of a cell. Null: the setting was not given.

    - `min_seconds`: minimum duration of the timed steps, such as 5s; more than --steps are timed if
      these take less (default: 5s; 0 if --steps or --epochs is given).
    - `min_warmup_seconds`: minimum duration of the warm-up after the first step (default: 1s; 0 if
      --steps or --epochs is given).
    - `page_cache`: state of the page cache before each epoch of a prepared set: its files are in
      memory (warm) or not (cold): cold, warm (default: unchanged).
    - `allocator`: memory allocators: system, jemalloc, tcmalloc (default: system).
    - `memory_limit`: limit for the private memory of a rank, such as 8GB (default: no limit).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_seconds: float | None = Field(default=None, ge=0)
    min_warmup_seconds: float | None = Field(default=None, ge=0)
    page_cache: Literal["cold", "warm"] | None = None
    allocator: Literal["jemalloc", "tcmalloc"] | None = None
    memory_limit: int | None = Field(default=None, ge=1)
