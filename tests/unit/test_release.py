"""`make release` refuses what would be a broken release, and writes the notes from the changelog."""

from __future__ import annotations

import io
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from devtools.release import IMPORTS, PACKAGES, ReleaseError, check_sdist, check_wheel, notes

ROOT = Path(__file__).resolve().parents[2]
CHANGES = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2027-01-01\n\n- New.\n\n## [0.1.0]\n\n- First.\n"


def wheel(folder: Path, version: str = "0.2.0", *, without: str = "", also: str = "") -> Path:
    path = folder / "raysweep.whl"
    names = [f"{package}{name}" for package in PACKAGES for name in ("__init__.py", "py.typed")]
    with zipfile.ZipFile(path, "w") as archive:
        for name in [each for each in names if each != without] + [also] * bool(also):
            archive.writestr(name, "")
        archive.writestr("raysweep-0.2.0.dist-info/METADATA", f"Name: raysweep\nVersion: {version}\n")
    return path


def sdist(folder: Path, *names: str) -> Path:
    path = folder / "raysweep.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"raysweep-0.2.0/{name}"), io.BytesIO())
    return path


def test_notes_are_the_section_of_the_version() -> None:
    assert notes(CHANGES, "0.2.0") == "- New.\n"
    assert notes(CHANGES, "0.1.0") == "- First.\n"


@pytest.mark.parametrize("version", ["0.3.0", "Unreleased"])
def test_a_version_without_notes_is_refused(version: str) -> None:
    with pytest.raises(ReleaseError, match=r"describes Unreleased, 0\.2\.0, 0\.1\.0, and not"):
        notes(CHANGES, version)


def test_a_whole_wheel_passes(tmp_path: Path) -> None:
    check_wheel(wheel(tmp_path), "0.2.0")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"version": "0.1.0"}, "has version 0.1.0; expected 0.2.0"),
        ({"without": "raysweep_airflow/py.typed"}, "has no raysweep_airflow/py.typed"),
        ({"also": "tests/secret.py"}, "holds tests besides"),
    ],
)
def test_a_wheel_that_is_not_what_it_says_is_refused(tmp_path: Path, made: dict[str, str], said: str) -> None:
    with pytest.raises(ReleaseError, match=re.escape(said)):
        check_wheel(wheel(tmp_path, **made), "0.2.0")


def test_a_source_without_its_license_is_refused(tmp_path: Path) -> None:
    check_sdist(sdist(tmp_path, "pyproject.toml", "README.md", "LICENSE", "hatch_build.py"))
    with pytest.raises(ReleaseError, match="has no LICENSE"):
        check_sdist(sdist(tmp_path, "pyproject.toml", "README.md", "hatch_build.py"))


def test_each_extra_of_users_is_checked() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) - {"all", "dev"} == set(IMPORTS) - {""}
