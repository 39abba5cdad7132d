"""How long a thing has been in trouble without a break."""


class Spells:
    """Spells of trouble by name; one ends when it is forgotten, or when nothing was seen of it for `gap_s`."""

    def __init__(self, gap_s: float) -> None:
        """`gap_s`: the longest time between two sightings of one spell."""
        self._gap_s = gap_s
        self._spells: dict[str, tuple[float, float]] = {}

    def seen(self, name: str, began_s: float, now_s: float) -> float:
        """Trouble from `began_s` to `now_s` was seen; returns the length of the spell in seconds."""
        self._spells = {one: spell for one, spell in self._spells.items() if began_s - spell[1] <= self._gap_s}
        since_s, _ = self._spells.get(name, (began_s, began_s))
        self._spells[name] = (since_s, now_s)
        return now_s - since_s

    def forget(self, name: str) -> None:
        """The trouble is over."""
        self._spells.pop(name, None)
