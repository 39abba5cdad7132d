"""Spells of trouble."""

from services.checkpoint.core.spells import Spells


def test_a_spell_grows_while_it_is_seen() -> None:
    spells = Spells(100)
    assert spells.seen("a", 10, 15) == 5
    assert spells.seen("a", 90, 95) == 85


def test_a_spell_ends_when_forgotten_or_not_seen_for_long() -> None:
    spells = Spells(100)
    spells.seen("a", 10, 15)
    spells.seen("b", 10, 15)
    spells.forget("a")
    assert spells.seen("a", 50, 52) == 2
    assert spells.seen("b", 116, 118) == 2
