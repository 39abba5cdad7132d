"""COMMIT.json: the same in every try, and judged by its writer and content."""

import pytest

from services.checkpoint.core import marker
from services.checkpoint.core.marker import Foreign, Own
from services.checkpoint.core.model import Checkpoint
from tests.unit.checkpoint.make import BINDING, JOB_ID, checkpoint, shard


def test_every_try_writes_the_same_bytes() -> None:
    assert marker.build(checkpoint(members=3), "p/") == marker.build(checkpoint(members=3), "p/")


def test_tc25_ones_own_marker_is_known() -> None:
    assert marker.judge(marker.build(checkpoint(), "p/"), checkpoint()) == Own()


@pytest.mark.parametrize(
    "other",
    [
        checkpoint(2),
        checkpoint(shards=(shard(digest="1"),)),
        checkpoint(binding=BINDING.model_copy(update={"seed": 8})),
    ],
)
def test_another_writer_or_other_content_is_foreign(other: Checkpoint) -> None:
    assert marker.judge(marker.build(other, "p/"), checkpoint()) == Foreign(other.writer)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"format": 2}', b'{"writer": "x"'])
def test_an_empty_or_torn_marker_is_nobodys(content: bytes) -> None:
    assert marker.judge(content, checkpoint()) == Foreign("nobody: it is not readable")
    assert marker.writer_of(content) is None


def test_an_incomplete_checkpoint_has_no_marker() -> None:
    with pytest.raises(AssertionError, match="lacks shards"):
        marker.build(checkpoint(members=2, shards=(shard(),)), "p/")


def test_a_writer_names_its_place() -> None:
    assert marker.place_of(checkpoint(3, 70).writer, JOB_ID) == (3, 70)
    assert marker.place_of("another-job/3/70", JOB_ID) is None
    assert marker.place_of("", JOB_ID) is None
