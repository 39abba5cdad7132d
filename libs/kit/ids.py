"""Identifiers: UUIDv7, so that ids sort by the time they were made."""

import os
import time

RANDOM_BYTES = 10


def uuid7(now_ms: int, random_bytes: bytes) -> str:
    """The UUIDv7 (RFC 9562) of `now_ms` milliseconds since 1970 and ten random bytes, as lower-case text."""
    assert len(random_bytes) == RANDOM_BYTES, f"uuid7 takes {RANDOM_BYTES} random bytes, got {len(random_bytes)}"
    random_a = int.from_bytes(random_bytes[:2], "big") & 0x0FFF
    random_b = int.from_bytes(random_bytes[2:], "big") & 0x3FFF_FFFF_FFFF_FFFF
    value = ((now_ms & 0xFFFF_FFFF_FFFF) << 80) | (0x7 << 76) | (random_a << 64) | (0b10 << 62) | random_b
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def new_id() -> str:
    """A new UUIDv7 of this moment."""
    return uuid7(time.time_ns() // 1_000_000, os.urandom(RANDOM_BYTES))
