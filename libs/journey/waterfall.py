"""Draw rows as lines of text: offset, duration, service, a bar on the time axis, words."""

from collections.abc import Sequence

from libs.journey.row import NS_PER_MS, Row

SOLID, BROKEN, MOMENT, LATER = "█", "▒", "▏", "»"
SHORTEST_BAR, LONGEST_SERVICE, LONGEST_WORDS = 10, 28, 44
# An invoice comes long after the job: when it is this many times the job's life away, the axis ends with the job.
MAX_STRETCH = 3
MS, S, MINUTE, HOUR = 1, 1_000, 60_000, 3_600_000


def lines(rows: Sequence[Row], width: int) -> list[str]:
    """The waterfall within `width` columns, as far as SHORTEST_BAR allows. Nothing for no rows."""
    if not rows:
        return []
    first, end = span_of(rows)
    labels = [
        (offset(row.start_ns - first), duration(row.duration_ms), where(row)[:LONGEST_SERVICE], told(row))
        for row in rows
    ]
    starts, lengths, services = (max(len(label[column]) for label in labels) for column in range(3))
    words = min(LONGEST_WORDS, max(len(label[3]) for label in labels))
    room = max(SHORTEST_BAR, width - starts - lengths - services - words - 8)
    found: list[str] = []
    for row, (start, length, service, text) in zip(rows, labels, strict=True):
        bar = _bar(row, first, end, room)
        shown = text if len(text) <= words else text[: words - 1] + "…"
        line = f"{start:>{starts}}  {length:>{lengths}}  {service:<{services}}  {bar}  {shown}"
        found.append(line.rstrip())
    return found


def span_of(rows: Sequence[Row]) -> tuple[int, int]:
    """Start and end of the time axis, in nanoseconds since 1970."""
    first = min(row.start_ns for row in rows)
    end = max(row.end_ns for row in rows)
    life = max((row.end_ns for row in rows if not row.linked), default=end)
    return first, end if end - first <= MAX_STRETCH * (life - first) else life


def where(row: Row) -> str:
    """`agent (node-1)`."""
    return place(row.service, row.node)


def place(service: str, node: str) -> str:
    """A service, with its node where it has one."""
    return f"{service} ({node})" if node else service


def told(row: Row) -> str:
    """The words with what marks them: `~` a linked trace, `x 3` told together, `(x2)` deliveries, the state."""
    parts = [f"~ {row.words}" if row.linked else row.words]
    parts += [f"x {row.count}"] * (row.count > 1)
    parts += [f"(x{row.deliveries})"] * (row.deliveries > 1)
    if row.state:
        parts.append(f"[{row.state}]")
    elif row.error:
        parts.append("[error]")
    return " ".join(parts)


def _bar(row: Row, first: int, end: int, room: int) -> str:
    """The row's part of the axis; a bar that begins behind the end of the axis is an arrow at its edge."""
    if row.start_ns > end:
        return LATER.rjust(room)
    scale = room / max(1, end - first)
    left = min(room - 1, int((row.start_ns - first) * scale))
    length = min(room - left, round(max(0, row.end_ns - row.start_ns) * scale))
    mark = (BROKEN if row.state else SOLID) * length or MOMENT
    return (" " * left + mark).ljust(room)


def offset(ns: int) -> str:
    """`+12.345s` after the start, `+2h03m04s` where that is long; a minus where it was before."""
    if ns < 0:
        return f"-{offset(-ns).removeprefix('+')}"
    seconds = ns // (NS_PER_MS * S)
    if seconds >= HOUR // S:
        return f"+{seconds // 3600}h{seconds // 60 % 60:02}m{seconds % 60:02}s"
    return f"+{ns / (NS_PER_MS * S):.3f}s"


def duration(ms: float) -> str:
    """`0.4 ms`, `250 ms`, `12.3 s`, `5m02s`, `3h04m`."""
    if ms < 10 * MS:
        return f"{ms:.1f} ms"
    if ms < S:
        return f"{ms:.0f} ms"
    if ms < MINUTE:
        return f"{ms / S:.1f} s"
    if ms < HOUR:
        return f"{int(ms // MINUTE)}m{int(ms % MINUTE // S):02}s"
    return f"{int(ms // HOUR)}h{int(ms % HOUR // MINUTE):02}m"
