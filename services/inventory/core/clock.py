"""The observed clock: how much stream time has passed while this service was watching.

A tick is published into the heartbeat stream and then the stream is read to its end. The stream keeps each node's
newest message only, so stopping at the tick would not do: a heartbeat from before it may have made room for one behind
it. At the end, whatever was acknowledged before the tick has been read, itself or as its successor.

The time between two ticks counts by the least of three measures: the stream's own timestamps, this service's clock from
the acknowledgement of one tick to the sending of the next, and `gap_ms`. So the observed clock never runs ahead of true
time, whatever steps the hub's wall clock makes, and the time in which the hub or this service was away, stopped or
frozen is not counted as anybody's silence.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from services.inventory.core.model import Clock, Tick

MILLISECOND = timedelta(milliseconds=1)


def between_ms(earlier: datetime, later: datetime) -> int:
    """Whole milliseconds from one instant to another, negative if they are the other way round."""
    return (later - earlier) // MILLISECOND


def advance(clock: Clock, tick: Tick, previous: Tick | None, gap_ms: int) -> Clock:
    """The clock after everything up to `tick` has been read.

    `previous` is the tick that this process committed last, None when it has just started. It counts only if it is the
    one that the clock stands at: another process, or a commit whose answer got lost, may have moved the clock since.
    """
    if clock.stream != tick.stream:
        return replace(
            clock,
            stream=tick.stream,
            read_sequence=tick.read_sequence,
            tick_at=tick.stored_at,
            floor_ms=clock.observed_ms,
        )
    follows = previous is not None and previous.read_sequence == clock.read_sequence
    own_ms = tick.sent_ms - previous.acked_ms if previous is not None and follows else 0
    credit_ms = max(0, min(between_ms(clock.tick_at, tick.stored_at), own_ms, gap_ms))
    return replace(
        clock,
        read_sequence=tick.read_sequence,
        tick_at=tick.stored_at,
        observed_ms=clock.observed_ms + credit_ms,
    )


def start_sequence(clock: Clock, stream: str) -> int:
    """The stream sequence that reading goes on from."""
    return clock.read_sequence + 1 if clock.stream == stream else 1
