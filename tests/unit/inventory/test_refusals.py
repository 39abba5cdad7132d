"""A heartbeat that cannot be taken is spoken of now and then, and the memory for it is bounded."""

from services.inventory.refusals import MAX_KEYS, Pace


def test_once_in_a_while_for_each_key() -> None:
    pace = Pace(every_ms=100)
    assert [pace.due("a", at) for at in (0, 50, 99, 100, 150)] == [True, False, False, True, False]
    assert pace.due("b", 150)


def test_longest_unused_key_is_forgotten_first() -> None:
    pace = Pace(every_ms=100)
    for number in range(MAX_KEYS + 1):
        assert pace.due(str(number), 0)
    assert pace.due("0", 1)
    assert not pace.due(str(MAX_KEYS), 1)
