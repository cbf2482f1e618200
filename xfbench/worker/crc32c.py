"""The checksum of TFRecord files: CRC-32C (Castagnoli, RFC 3720) and its masked form.

The checksum is linear over bits. Therefore the state after n 32-bit words, starting from
state 0, is the XOR of n contributions, one for each word. To compute the contribution of word i
(from 0), start with the word as the state and process 4·(n − i) zero bytes.

NumPy does this for all words at once. It combines neighbouring words in pairs until one is left.
"""

from __future__ import annotations

import functools
from typing import List

import numpy as np

_POLYNOMIAL = 0x82F63B78
_MAX_BYTEWISE = 64  # bytes; NumPy is faster for longer content


def _build_table() -> List[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)  # noqa: PLW2901
        table.append(value)
    return table


_TABLE = _build_table()


def crc32c(content: bytes) -> int:
    """Return the CRC-32C of `content`."""
    state = 0xFFFFFFFF
    if len(content) <= _MAX_BYTEWISE:
        return _update_bytewise(state, content) ^ 0xFFFFFFFF
    head = len(content) % 4
    words = np.frombuffer(content, "<u4", offset=head).astype(np.uint32)
    words[0] ^= np.uint32(_update_bytewise(state, content[:head]))
    return _crc_state_after_words(words) ^ 0xFFFFFFFF


def masked_crc32c(content: bytes) -> int:
    """Return the CRC-32C of `content` as TFRecord files store it: rotated, plus a constant."""
    crc = crc32c(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _update_bytewise(state: int, content: bytes) -> int:
    for byte in content:
        state = _TABLE[(state ^ byte) & 0xFF] ^ state >> 8
    return state


def _crc_state_after_words(words: np.ndarray) -> int:
    """Process the uint32 `words`, starting from state 0. Return the final state."""
    level = 0
    while len(words) > 1:
        if len(words) % 2:
            words = np.concatenate((np.zeros(1, np.uint32), words))
        words = (
            _states_after_zero_words(level, _split_into_16_bit_halves(words)[0::2]) ^ words[1::2]
        )
        level += 1
    return int(_states_after_zero_words(0, _split_into_16_bit_halves(words))[0])


def _split_into_16_bit_halves(words: np.ndarray) -> np.ndarray:
    """Return `words` as an array (n, 2) with the lower and the upper 16 bits of each word."""
    return words.astype("<u4", copy=False).view("<u2").reshape(-1, 2)


def _states_after_zero_words(level: int, state_halves: np.ndarray) -> np.ndarray:
    """Process 4 * 2**level zero bytes from each of several states. Return the new states.

    `state_halves` contains the old states, as `_split_into_16_bit_halves` returns them.
    """
    lower, upper = _zero_words_table(level)
    states_after: np.ndarray = np.take(lower, state_halves[:, 0], mode="clip")
    states_after ^= np.take(upper, state_halves[:, 1], mode="clip")
    return states_after


@functools.lru_cache(maxsize=None)
def _zero_words_table(level: int) -> np.ndarray:
    """Return the table with which `_states_after_zero_words` processes 4 * 2**level zero bytes.

    The table has the shape (2, 65536):

    - `table[0, v]` is the state that follows state v.
    - `table[1, v]` is the state that follows state v * 2**16.
    """
    if level:
        once = _zero_words_table(level - 1).reshape(-1)
        return _states_after_zero_words(level - 1, _split_into_16_bit_halves(once)).reshape(2, -1)
    table, states = np.array(_TABLE, np.uint32), np.arange(2**16, dtype=np.uint32)
    halves = np.concatenate((states, states << np.uint32(16)))
    for _ in range(4):
        halves = table[halves & np.uint32(0xFF)] ^ halves >> np.uint32(8)
    return halves.reshape(2, -1)
