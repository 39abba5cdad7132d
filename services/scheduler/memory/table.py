"""Rows of whole numbers that come and go, kept in columns: a change costs what changes, not what is there."""

import numpy as np

from services.scheduler.core.arrays import Bools, Ints

FIRST_ROWS = 64


class Table:
    """Columns of equal length. A row keeps its number until it is dropped; numbers of dropped rows are given again."""

    def __init__(self, *names: str) -> None:
        self._columns = {name: np.zeros(FIRST_ROWS, dtype=np.int64) for name in names}
        self._there: Bools = np.zeros(FIRST_ROWS, dtype=np.bool_)
        self._free: list[int] = []
        self._size = 0

    def add(self, **values: int) -> int:
        """Add a row with a value for each column; returns its number."""
        assert values.keys() == self._columns.keys(), f"row has {sorted(values)}, the table {sorted(self._columns)}"
        row = self._free.pop() if self._free else self._next()
        self._there[row] = True
        self.put(row, **values)
        return row

    def put(self, row: int, **values: int) -> None:
        """Change some columns of a row."""
        for name, value in values.items():
            self._columns[name][row] = value

    def raise_(self, row: int, name: str, by: int) -> None:
        """Add to one column of a row."""
        self._columns[name][row] += by

    def drop(self, row: int) -> None:
        """Take a row out."""
        self._there[row] = False
        self._free.append(row)

    def rows(self) -> Ints:
        """The numbers of the rows that are there."""
        return np.flatnonzero(self._there[: self._size])

    def column(self, name: str) -> Ints:
        """All values of a column by row number, those of dropped rows included; changes with the table."""
        return self._columns[name][: self._size]

    @property
    def size(self) -> int:
        """One more than the highest row number ever used."""
        return self._size

    def __len__(self) -> int:
        return self._size - len(self._free)

    def _next(self) -> int:
        if self._size == len(self._there):
            self._there = np.concatenate((self._there, np.zeros_like(self._there)))
            for name, column in self._columns.items():
                self._columns[name] = np.concatenate((column, np.zeros_like(column)))
        self._size += 1
        return self._size - 1


def positions(rows: Ints, size: int) -> Ints:
    """Where each row number stands in `rows`; -1 where it does not."""
    found = np.full(size, -1, dtype=np.int64)
    found[rows] = np.arange(len(rows))
    return found


class Words:
    """Numbers for words, given out as the words come."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, word: str) -> int:
        """The number of a word."""
        return self._numbers.setdefault(word, len(self._numbers))

    @property
    def words(self) -> tuple[str, ...]:
        """All words by number."""
        return tuple(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)
