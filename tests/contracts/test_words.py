"""Words: a closed set refuses what it does not have, an open one passes on what a newer writer says."""

from enum import StrEnum

import pytest
from pydantic import ValidationError

from contracts.attempts import ExitCause
from contracts.base import Model, Open, Tier


class Ripe(Model):
    """A body with one word of each sort."""

    cause: Open[ExitCause]
    other: Open[ExitCause] | None = None
    tier: Tier = Tier.CENTRAL


def test_a_known_word_arrives_as_its_member() -> None:
    read = Ripe.model_validate_json('{"cause": "hung", "other": "killed"}', strict=True)
    assert read.cause is ExitCause.HUNG
    assert read.other is ExitCause.KILLED
    assert Ripe(cause="hung").cause is ExitCause.HUNG


def test_an_unknown_word_is_kept_as_it_came() -> None:
    read = Ripe.model_validate_json('{"cause": "power_cut"}', strict=True)
    assert read.cause == "power_cut"
    assert not isinstance(read.cause, StrEnum)
    assert Ripe.model_validate_json(read.model_dump_json(), strict=True) == read


@pytest.mark.parametrize("word", ["", "Hung", "power cut", "1st", "_x", "x" * 64, "café", "hung\\n"])
def test_what_is_no_word_is_refused(word: str) -> None:
    with pytest.raises(ValidationError, match="cause"):
        Ripe.model_validate_json(f'{{"cause": "{word}"}}', strict=True)


@pytest.mark.parametrize("said", ["7", "null", "true", '["hung"]'])
def test_what_is_no_text_is_refused(said: str) -> None:
    with pytest.raises(ValidationError, match="cause"):
        Ripe.model_validate_json(f'{{"cause": {said}}}', strict=True)


def test_a_closed_set_refuses_and_names_its_words() -> None:
    with pytest.raises(ValidationError, match="'central', 'remote' or 'shared'"):
        Ripe.model_validate_json('{"cause": "hung", "tier": "lunar"}', strict=True)


def test_the_schema_lists_the_words_without_binding_anybody_to_them() -> None:
    said = Ripe.model_json_schema()["properties"]["cause"]
    assert said["x-farside"] == {"words": [cause.value for cause in ExitCause]}
    assert said["pattern"] == "^[a-z][a-z0-9_]{0,62}$"
    assert said["description"].startswith("Why a task ended")
    assert "enum" not in said
