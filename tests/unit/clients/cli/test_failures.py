"""Sentences of failures, and the name that is meant by a wrong one."""

from __future__ import annotations

from kraftrio.clients.cli.failures import CommandError, explain, innermost
from kraftrio.clients.errors import TopicExistsError


def test_expected_errors_are_one_sentence() -> None:
    assert explain(CommandError("this\n  is it")) == "this is it"
    assert explain(TopicExistsError("it is there")) == "it is there"
    assert explain(FileNotFoundError(2, "No such file", "a")) == "a: No such file"


def test_what_happened_within_nurseries() -> None:
    error = CommandError("inside")
    assert innermost(ExceptionGroup("outer", [ExceptionGroup("inner", [error])])) is error
    both = ExceptionGroup("two", [error, CommandError("beside")])
    assert innermost(both) is both


def test_what_else_failed_is_said_too() -> None:
    error = TopicExistsError("a: is there")
    error.add_note("b: is there")
    assert explain(error) == "a: is there; b: is there"


def test_faults_of_ours_are_not_explained() -> None:
    assert explain(AssertionError("a fault")) is None
    assert explain(ExceptionGroup("two", [CommandError("a"), CommandError("b")])) is None
