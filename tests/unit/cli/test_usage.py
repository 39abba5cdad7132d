"""`farside usage`: what is said without a stack."""

import pytest
from click.testing import CliRunner

from libs.cli import main
from libs.cli.errors import USAGE


@pytest.mark.parametrize("words", [["--samples"], ["digits-train", "--samples", "--refused"]])
def test_samples_are_those_of_one_job(words: list[str]) -> None:
    result = CliRunner().invoke(main.cli, ["usage", *words])
    assert result.exit_code == USAGE
    assert "--samples shows the samples of one JOB: name it, without --refused" in result.output
