"""Figures as pages show them, and templates that escape whatever is filled in."""

from __future__ import annotations

import jinja2
import pytest

from kraftrio.clients.console.rendering import (
    count_text,
    make_environment,
    rate_text,
    size_text,
)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (150_000, "146 KiB"),
        (5 << 30, "5.0 GiB"),
        (1 << 62, "4096 PiB"),
    ],
)
def test_sizes(size_bytes: int | None, text: str) -> None:
    assert size_text(size_bytes) == text


def test_counts_and_rates() -> None:
    assert [count_text(value) for value in (None, 0, 1_234_567)] == ["–", "0", "1,234,567"]
    rates = [rate_text(value) for value in (None, 0, 0.25, 9.96, 12_345.6)]
    assert rates == ["–", "0/s", "0.2/s", "10.0/s", "12,346/s"]


def test_templates_escape() -> None:
    environment = make_environment()
    made = environment.from_string("<a title='{{ text }}'>{{ text|dash }}</a>")
    assert made.render(text="'<&>") == "<a title='&#39;&lt;&amp;&gt;'>&#39;&lt;&amp;&gt;</a>"
    with pytest.raises(jinja2.UndefinedError):
        environment.from_string("{{ nothing }}").render()


def test_no_template_lets_anything_through_as_it_is() -> None:
    environment = make_environment()
    assert environment.loader is not None
    names = environment.list_templates()
    assert "base.html" in names
    for name in names:
        source, _, _ = environment.loader.get_source(environment, name)
        assert "|safe" not in source.replace(" ", "")
        assert "autoescape" not in source
        for inline in (" style=", " onclick=", "javascript:", "<script>", "<style"):
            assert inline not in source, name
