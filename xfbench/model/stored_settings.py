"""Settings that every cell stores. Written by `make settings` from settings.py: do not edit."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class StoredSettings(BaseModel):
    """Fields of a cell. Null: the setting was not given.

    - `page_cache`: state of the page cache before each epoch of a prepared set: its files are in
      memory (warm) or not (cold): cold, warm (default: unchanged).
    - `allocator`: memory allocators: system, jemalloc, tcmalloc (default: system).
    - `memory_limit`: limit for the private memory of a rank, such as 8GB (default: no limit).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    page_cache: Literal["cold", "warm"] | None = None
    allocator: Literal["jemalloc", "tcmalloc"] | None = None
    memory_limit: int | None = Field(default=None, ge=1)
