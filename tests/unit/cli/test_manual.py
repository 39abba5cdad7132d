"""Help pages: laid-out paragraphs keep their lines, the rest is wrapped to the terminal."""

import click
from click.testing import CliRunner

from libs.cli.manual import Manual, ManualGroup


@click.command(cls=Manual)
def speak() -> None:
    """Say a great many words that go on for so long that no terminal of eighty columns could ever hold them in a line.

    Examples:
      speak
      speak --loud

    """


def test_layout() -> None:
    lines = CliRunner().invoke(speak, ["--help"]).output.splitlines()
    assert "  Examples:" in lines
    assert "    speak --loud" in lines
    assert all(len(line) <= 80 for line in lines)


def test_a_list_of_commands_cuts_no_sentence_off() -> None:
    group = ManualGroup("tell", commands={"speak": speak})
    said = " ".join(CliRunner().invoke(group, ["--help"]).output.split())
    assert f"speak {' '.join(str(speak.help).split()).partition('.')[0]}." in said
