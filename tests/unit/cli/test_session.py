"""What commands share: all pages of a query, in one way."""

from dataclasses import dataclass

from libs.cli.session import every, pages


@dataclass(frozen=True)
class Page:
    cursor: str | None
    items: tuple[int, ...]


class Book:
    """Answers with a page at a time, and keeps what it was asked."""

    def __init__(self) -> None:
        self.pages = {None: Page("a", (1, 2)), "a": Page("b", ()), "b": Page(None, (3,))}
        self.asked: list[str | None] = []

    async def ask(self, cursor: str | None) -> Page:
        self.asked.append(cursor)
        return self.pages[cursor]


async def test_every_item_of_all_pages_in_order() -> None:
    book = Book()
    assert await every(book.ask, lambda page: page.items) == [1, 2, 3]
    assert book.asked == [None, "a", "b"]


async def test_no_page_is_asked_for_that_nobody_wants() -> None:
    book = Book()
    async for page in pages(book.ask):
        if page.items:
            break
    assert book.asked == [None]
