"""`kraftrio security init`: what it says, and that it does its work once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftrio.commands.tree import main


def test_it_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "kafka"
    assert main(["security", "init", "--data", str(folder), "--port", "9600"]) == 0
    said = capsys.readouterr().out.splitlines()
    named = {line.partition(": ")[0] for line in said[:-1]}
    assert named == {str(path) for path in folder.rglob("*") if path.is_file()}
    assert f"kraftrio start --config {folder}/server.properties" in "\n".join(said)
    assert "admin" in said[-1]


def test_a_second_time_it_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["security", "init", "--data", str(tmp_path)]) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main(["security", "init", "--data", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        f"kraftrio: {tmp_path}/security/ca.pem is there already: nothing was written, and nothing"
        " is overwritten\n"
    )
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize("options", [["--host", " "], ["--port", "65534"], ["--port", "x"], []])
def test_wrong_options(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--data", str(tmp_path)] if options else []
    assert main(["security", "init", *data, *options]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())
