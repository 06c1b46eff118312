"""The page of errors, from the classes of `kraftrio.errors` and the sheet of remedies."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from kraftrio import errors
from kraftrio.errors import ErrorCode, KafkaClientError
from reference.error_sheet import remedies
from reference.tables import code, section, table


def page() -> Iterator[str]:
    """Every error of the clients with its remedy, and every code of the protocol."""
    yield "# Errors"
    yield ""
    yield "The classes of `kraftrio.errors`. Each has `code` (Kafka's), `message`, and `retriable`:"
    yield "whether the same call may succeed later. `except RetriableError` catches those. Made"
    yield "from the classes and `scripts/reference/error_sheet.py`."
    known = remedies()
    found = [each for each in map(_class_of, errors.__all__) if each is not None]
    names = {each.__name__ for each in found}
    assert names <= set(known), f"say in scripts/reference/error_sheet.py: {names - set(known)}"
    assert names == set(known), (
        f"no errors, in scripts/reference/error_sheet.py: {set(known) - names}"
    )
    yield from section("Errors of the clients")
    yield from table(
        ("error", "is a", "meaning", "what to do"),
        (
            (
                code(each.__name__),
                ", ".join(code(base.__name__) for base in each.__bases__),
                _meaning(each),
                known[each.__name__],
            )
            for each in found
        ),
    )
    yield from section("Codes of the protocol", "What other clients show for the same causes.")
    yield from table(
        ("code", "name", "meaning", "retriable"),
        (
            (str(error.value), code(error.name), error.text, "yes" if error.retriable else "")
            for error in ErrorCode
        ),
    )


def _class_of(name: str) -> type[KafkaClientError] | None:
    found = getattr(errors, name)
    is_error = inspect.isclass(found) and issubclass(found, KafkaClientError)
    return found if is_error else None


def _meaning(error: type[KafkaClientError]) -> str:
    """Return the first sentence of its own docstring, or the meaning of its code."""
    doc = error.__dict__.get("__doc__") or ""
    text = doc.strip().partition("\n\n")[0] or error.default_code.text
    text = " ".join(text.split())
    text = text[0].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."
