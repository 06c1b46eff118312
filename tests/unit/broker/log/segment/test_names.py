"""Names of a segment's files, to and fro."""

from __future__ import annotations

from kraftrio.broker.log.segment.names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SegmentNames,
    base_offset_of,
    segment_name,
)


def test_base_offset_is_in_the_name() -> None:
    assert segment_name(42) + LOG_SUFFIX == "00000000000000000042.log"
    assert base_offset_of("00000000000000000042.log", LOG_SUFFIX) == 42


def test_other_names_are_no_segments() -> None:
    for name in ("42.log", "00000000000000000042.index", "0000000000000000004x.log", "x.log"):
        assert base_offset_of(name, LOG_SUFFIX) is None, name
    cleaned = "00000000000000000042.log.cleaned"
    assert base_offset_of(cleaned, LOG_SUFFIX) is None
    assert base_offset_of(cleaned, LOG_SUFFIX + CLEANED_SUFFIX) == 42


def test_paths_follow_renames() -> None:
    names = SegmentNames("/logs/t-0", 7)
    assert names.path(INDEX_SUFFIX) == "/logs/t-0/00000000000000000007.index"
    names.suffix, names.directory = CLEANED_SUFFIX, "/other"
    assert names.path(INDEX_SUFFIX) == "/other/00000000000000000007.index.cleaned"
