"""A secret is shown nowhere, and returned by nothing but `reveal`."""

from __future__ import annotations

from dataclasses import dataclass

from kraftrio.base.secret import Secret


@dataclass
class Holder:
    password: Secret


def test_no_text_of_it_holds_the_secret() -> None:
    holder = Holder(Secret("s3cret"))
    shown = [repr(holder), str(holder.password), f"{holder.password}", f"{holder.password!r}"]
    assert not any("s3cret" in text for text in shown)
    assert "[hidden]" in shown[0]


def test_it_is_revealed_and_compared_by_its_text() -> None:
    assert Secret("a").reveal() == "a"
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a"), Secret("b")}) == 2
