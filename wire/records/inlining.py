"""Compiles functions that read many varints with the short ones read in place.

A call costs several times what reading a varint of one byte does, and a record has five of them. In
``inlined(function)`` each statement

    raw, pos = read_uvarint(data, pos)

is replaced by what would else be written out each time::

    if (raw := data[pos]) < 0x80:
        pos += 1
    elif (high := data[pos + 1]) < 0x80:
        raw, pos = raw + (high << 7) - 0x80, pos + 2
    else:
        raw, pos = read_uvarint(data, pos)

The function does the same as it is, and is left so where its source is not at hand. Lines in
tracebacks are those of the source.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")

_READERS = {"read_uvarint", "read_uvarlong"}

_IN_PLACE = """
if ({number} := {data}[{start}]) < 0x80:
    {pos} += {skipped_1}
elif (high := {data}[{pos} + {skipped_1}]) < 0x80:
    {number}, {pos} = {number} + (high << 7) - 0x80, {pos} + {skipped_2}
else:
    {number}, {pos} = {reader}({data}, {start})
"""


@functools.cache
def inlined(function: Callable[P, T]) -> Callable[P, T]:
    """Return a module's function with its reads of short varints in place; compiled once."""
    assert isinstance(function, FunctionType)
    try:
        lines, first = inspect.getsourcelines(function)
    except OSError:
        return cast("Callable[P, T]", function)
    source = "".join(lines)
    # The file may have been replaced since the function was imported.
    before = _definition(source, first, function)
    if _code_of(before, function).co_code != function.__code__.co_code:
        return cast("Callable[P, T]", function)
    after = _Inliner().visit(_definition(source, first, function))
    return cast("Callable[P, T]", FunctionType(_code_of(after, function), function.__globals__))


def _definition(source: str, first: int, function: FunctionType) -> ast.FunctionDef:
    tree = ast.parse(source)
    ast.increment_lineno(tree, first - 1)
    (definition,) = tree.body
    assert isinstance(definition, ast.FunctionDef)
    return definition


def _code_of(definition: ast.FunctionDef, function: FunctionType) -> CodeType:
    module = ast.Module([definition], type_ignores=[])
    compiled = compile(module, function.__code__.co_filename, "exec")
    return next(code for code in compiled.co_consts if isinstance(code, CodeType))


class _Inliner(ast.NodeTransformer):
    """Replaces statements `number, pos = reader(data, pos + constant)`."""

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        (target,) = node.targets
        call = node.value
        if not (
            isinstance(target, ast.Tuple)
            and isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id in _READERS
        ):
            return node
        number, pos = map(ast.unparse, target.elts)
        data, start = map(ast.unparse, call.args)
        skipped = int(start.removeprefix(pos).removeprefix(" + ") or 0)
        source = _IN_PLACE.format(
            number=number,
            pos=pos,
            data=data,
            start=start,
            skipped_1=skipped + 1,
            skipped_2=skipped + 2,
            reader=call.func.id,
        )
        (statement,) = ast.parse(source).body
        for part in ast.walk(statement):
            ast.copy_location(part, node)
        return statement
