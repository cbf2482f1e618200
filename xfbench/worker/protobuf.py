"""A parser of protocol-buffer messages, sufficient for TensorFlow's Example and Caffe's Datum.

The page "Encoding" of the protocol-buffers documentation describes the encoding. The parser checks
all lengths in a message.
"""

from __future__ import annotations

from typing import Iterator, Tuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
Span = Tuple[int, int]
_FIXED = {FIXED64: 8, FIXED32: 4}


class Malformed(ValueError):
    """The bytes are not a valid message. The error says where and why."""


def iterate_fields(message: bytes, span: Span) -> Iterator[Tuple[int, int, int, int]]:
    """Yield every field of `message` in `span` as (number, wire type, first, second).

    - `span`: (start, end) in bytes.
    - First and second of a varint: the unsigned value, and 0.
    - First and second of other wire types: the start and the end of the field's bytes in `message`.

    Raises Malformed at the first field that is not valid.
    """
    place, end = span
    while place < end:
        tag, place = parse_varint(message, place, end)
        number, wire = tag >> 3, tag & 7
        if not number:
            raise Malformed(f"field 0 is not allowed: its tag ends before byte {place}")
        if wire == VARINT:
            value, place = parse_varint(message, place, end)
            yield number, wire, value, 0
            continue
        if wire == BYTES:
            length, place = parse_varint(message, place, end)
        elif wire in _FIXED:
            length = _FIXED[wire]
        else:
            raise Malformed(f"field {number} has the unknown wire type {wire}")
        if length > end - place:
            raise Malformed(f"field {number} is longer than the message around it")
        yield number, wire, place, place + length
        place += length


def parse_varint(message: bytes, place: int, end: int) -> Tuple[int, int]:
    """Parse the varint that begins at byte `place`. Return its value and the position after it.

    The value is an unsigned number of up to 64 bits. Raises Malformed if the varint does not end
    before byte `end` or is too long.
    """
    value = 0
    for shift in range(0, 70, 7):
        if place >= end:
            raise Malformed(f"a number is cut off at byte {place}")
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), place
    raise Malformed(f"a number does not end within ten bytes, before byte {place}")


def iterate_packed_varints(message: bytes, span: Span) -> Iterator[int]:
    """Yield the numbers of a packed field, whose bytes are `span` of `message`."""
    place, end = span
    while place < end:
        value, place = parse_varint(message, place, end)
        yield value


def to_signed(value: int) -> int:
    """Return the signed 64-bit number that has the same bits as the unsigned `value`."""
    return value - 2**64 if value >= 2**63 else value
