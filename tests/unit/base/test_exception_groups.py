"""The first plain exception of nested groups."""

from __future__ import annotations

from kraftrio.base.exception_groups import innermost


def test_the_first_plain_exception_is_found_at_any_depth() -> None:
    first, second = ValueError("first"), KeyError("second")
    nested = BaseExceptionGroup("", [ExceptionGroup("", [first]), second])
    assert innermost(nested) is first
    assert innermost(second) is second
