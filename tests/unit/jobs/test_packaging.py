"""Packages: named by content, without secrets and without anything from outside the folder."""

from __future__ import annotations

import io
import os
import shutil
import socket
import subprocess
import zipfile
from pathlib import Path
from random import Random

import pytest

from raysweep.errors import SpecError
from raysweep.jobs.code import packaging
from raysweep.jobs.code.ignores import Patterns
from raysweep.jobs.code.packaging import Package, pack_module, pack_working_dir


def write(root: Path, *names: str, text: str = "x") -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def names(package: Package) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(package.to_zip())) as archive:
        assert archive.testzip() is None
        return archive.namelist()


def left(package: Package) -> dict[str, str]:
    return {each.path: each.why for each in package.left_out}


def test_the_same_files_are_the_same_package_to_the_byte(tmp_path: Path) -> None:
    one = write(tmp_path / "one", "train.py", "lib/data.csv")
    (one / "run.sh").write_text("#!/bin/sh\n")
    (one / "run.sh").chmod(0o755)
    two = tmp_path / "two"
    shutil.copytree(one, two)
    for path in two.rglob("*"):
        os.utime(path, (1, 1))
    first, second = pack_working_dir(one), pack_working_dir(two)
    assert first.uri == second.uri
    assert first.to_zip() == second.to_zip()
    assert first.uri.startswith("gcs://_ray_pkg_")
    assert names(first) == ["lib/data.csv", "run.sh", "train.py"]


@pytest.mark.parametrize("change", ["content", "name", "mode", "moved"])
def test_any_difference_is_another_package(tmp_path: Path, change: str) -> None:
    write(tmp_path, "a/b.py", "c.py")
    before = pack_working_dir(tmp_path).uri
    if change == "content":
        (tmp_path / "c.py").write_text("y")
    elif change == "name":
        (tmp_path / "c.py").rename(tmp_path / "d.py")
    elif change == "mode":
        (tmp_path / "c.py").chmod(0o755)
    else:
        (tmp_path / "a/b.py").rename(tmp_path / "a/c.py")
    assert pack_working_dir(tmp_path).uri != before


def test_secrets_and_what_tools_made_are_left_out_and_said(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "lib/model.py", "environment.py", "keys.py", "tokenizer.json")
    secrets = (".env", ".env.local", "prod.env", "server.pem", "lib/tls.KEY", "id_rsa", "id_ed25519.pub")
    secrets += (
        "credentials.json",
        "credentials-prod.json",
        ".netrc",
        "service_account_7.json",
        "secrets.yaml",
    )
    secrets += (
        "kubeconfig",
        "prod.kubeconfig",
        ".databrickscfg",
        ".dockercfg",
        ".s3cfg",
        ".boto",
        "rclone.conf",
    )
    secrets += (
        ".vault-token",
        ".my.cnf",
        "terraform.tfstate",
        "terraform.tfstate.backup",
        "terraform.tfstate.1.backup",
    )
    write(tmp_path, *secrets, ".aws/config", ".prefect/profiles.toml", text="a-secret-of-mine")
    write(tmp_path, ".git/config", "__pycache__/a.pyc", "lib/old.pyc", ".venv/bin/python", "env/pyvenv.cfg")
    package = pack_working_dir(tmp_path)
    assert names(package) == ["environment.py", "keys.py", "lib/model.py", "tokenizer.json", "train.py"]
    assert b"a-secret-of-mine" not in package.to_zip()
    said = left(package)
    assert {said[name] for name in (*secrets, ".aws/", ".prefect/")} == {"may hold secrets"}
    assert said[".git/"] == said["__pycache__/"] == said["lib/old.pyc"] == "made by a tool"
    assert said["env/"] == "a virtual environment"


def test_what_a_name_keeps_out_can_be_taken_by_name(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "certs/ca.pem", "certs/own.pem", ".env")
    package = pack_working_dir(tmp_path, includes=["certs/ca.pem"])
    assert names(package) == ["certs/ca.pem", "train.py"]
    assert set(left(package)) == {"certs/own.pem", ".env"}
    assert names(pack_working_dir(tmp_path, includes=["*.pem"], excludes=["own.pem"])) == names(package)


def test_links_never_bring_in_what_is_outside(tmp_path: Path) -> None:
    write(tmp_path, "outside/passwords", "outside/more/x", text="a-secret-of-mine")
    root = write(tmp_path / "root", "train.py", "lib/a.py", ".env", "deep/er/x.py", text="mine")
    for name, target in {
        "up": "../outside/passwords",
        "folder": "../outside",
        "lib/far": "../../outside/more/x",
        "absolute": str(tmp_path / "outside/passwords"),
        "absolute_inside": str(root / "train.py"),
        "to_root": "..",
        "self": ".",
        "deep/er/again": "..",
        "nowhere": "missing",
        "loop": "loop",
        "harmless": ".env",
        "same.py": "train.py",
        "lib2": "lib",
    }.items():
        (root / name).symlink_to(target)
    package = pack_working_dir(root)
    assert names(package) == ["deep/er/x.py", "lib/a.py", "lib2/a.py", "same.py", "train.py"]
    assert b"a-secret-of-mine" not in package.to_zip()
    said = left(package)
    for name in ("up", "folder", "lib/far", "to_root"):
        assert said[name] == "a link that leads out of the folder", name
    assert said["absolute"] == said["absolute_inside"] == "an absolute link"
    assert said["self"] == said["deep/er/again"] == "a link to a folder that it is in"
    assert said["nowhere"] == said["loop"] == "a link that leads nowhere"
    # Under another name it is still the file that may hold secrets.
    assert said["harmless"] == said[".env"] == "may hold secrets"


def test_every_name_in_the_zip_stays_below_its_root(tmp_path: Path) -> None:
    root = write(tmp_path / "root", "a/..b/c", "a/...", "back\\slash", "a/~root")
    for name in names(pack_working_dir(root)):
        assert not name.startswith("/")
        assert ".." not in name.split("/")


def test_special_files_and_odd_names(tmp_path: Path) -> None:
    root = write(tmp_path / "r", "train.py")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "socket"))
        said = left(pack_working_dir(root))
    assert said == {"pipe": "no regular file", "socket": "no regular file"}
    (root / os.fsdecode(b"caf\xe9")).write_text("x")
    with pytest.raises(SpecError, match="UTF-8"):
        pack_working_dir(root)


def test_a_folder_that_is_too_large_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "train.py", *(f"shards/{number}.bin" for number in range(40)))
    for path in (tmp_path / "shards").iterdir():
        os.truncate(path, 2 * 1024**2)
    with open(tmp_path / "model.bin", "wb") as file:
        file.truncate(60 * 1024**2)
    monkeypatch.setattr(packaging.Entry, "chunks", lambda self: pytest.fail("it was read"))
    with pytest.raises(SpecError, match=r"140\.0 MiB.*100\.0 MiB") as caught:
        pack_working_dir(tmp_path)
    assert "shards/ (80.0 MiB), model.bin (60.0 MiB), shards/0.bin (2.0 MiB)" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "problem"), [("missing", "does not exist"), ("file", "is a file"), ("empty", "holds no file")]
)
def test_what_is_no_folder_of_files(tmp_path: Path, given: str, problem: str) -> None:
    write(tmp_path, "file", "empty/.git/config")
    with pytest.raises(SpecError, match=problem):
        pack_working_dir(tmp_path / given)


def test_a_file_that_changes_while_it_is_packed(tmp_path: Path) -> None:
    package = pack_working_dir(write(tmp_path, "train.py"))
    (tmp_path / "train.py").write_text("y")
    with pytest.raises(SpecError, match="changed"):
        package.to_zip()


def test_modules_are_packed_under_their_own_name(tmp_path: Path) -> None:
    write(tmp_path, "mine/__init__.py", "mine/sub/a.py", "single.py", "mine/.env")
    assert names(pack_module(tmp_path / "mine")) == ["mine/__init__.py", "mine/sub/a.py"]
    assert names(pack_module(tmp_path / "single.py")) == ["single.py"]
    link = tmp_path / "other"
    link.symlink_to("mine")
    assert pack_module(link).uri == pack_module(tmp_path / "mine").uri


def test_ignore_files_count_in_their_folder(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "a.log", "sub/b.log", "sub/c.tmp", "d.tmp", "data/big.bin", "keep/e.log")
    (tmp_path / ".gitignore").write_text("*.log\n!keep/e.log\n")
    (tmp_path / ".rayignore").write_text("/data\n")
    (tmp_path / "sub/.rayignore").write_text("*.tmp\n")
    package = pack_working_dir(tmp_path, excludes=["d.*"])
    assert [name for name in names(package) if "ignore" not in name] == ["keep/e.log", "train.py"]
    assert left(package)["data/"] == left(package)["a.log"] == "in an ignore file"
    assert left(package)["d.tmp"] == "excluded"


PATTERNS = [
    *("*.log", "!keep.log", "/root.txt", "build/", "a/b", "a/*/c", "**/deep", "x/**", "x/**/y", "?.md"),
    *("[ab].c", "[!ab].d", "# comment", "", "\\#real", "tr*ing", "sp ace", "trailing  ", "/top/", "m/n/"),
    *("*", "!*/", "!*.py"),
]
PATHS = [
    *("a.log", "keep.log", "d/keep.log", "root.txt", "d/root.txt", "build/x", "d/build/x", "a/b"),
    *(
        "]",
        "-",
        "[",
        "z",
        "\\",
        "z.c",
        "b.d",
        "d/a/b",
        "a/z/c",
        "a/z/z/c",
        "deep",
        "q/w/deep",
        "x/0",
        "x/1/2/y",
        "x/y",
        "e.md",
        "ee.md",
        "a.c",
    ),
    *("c.c", "a.d", "c.d", "#real", "trailing", "tr_x_ing", "sp ace", "top/f", "d/top/f", "m/n/o", "z.py"),
]


def left_out_by_git(root: Path, lines: list[str]) -> set[str]:
    (root / ".git/info/exclude").write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        ["git", "-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "--stdin", "-z"],
        cwd=root,
        input="\0".join(PATHS),
        capture_output=True,
        text=True,
        check=False,
    )
    return {path for path in done.stdout.split("\0") if path}


def left_out(lines: list[str]) -> set[str]:
    patterns = Patterns.of(lines)

    def is_out(path: str) -> bool:
        parts = path.split("/")
        folders = ("/".join(parts[:n]) for n in range(1, len(parts)))
        return any(patterns.match(folder, is_folder=True) for folder in folders) or patterns.match(
            path, is_folder=False
        )

    return {path for path in PATHS if is_out(path)}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write(tmp_path, *PATHS)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


@pytest.mark.parametrize(
    "lines", [[pattern] for pattern in PATTERNS if pattern] + [PATTERNS[:-3], ["*", "!*/", "!*.py"]], ids=str
)
def test_patterns_mean_what_git_says(repository: Path, lines: list[str]) -> None:
    assert left_out(lines) == left_out_by_git(repository, lines)


ODD = [
    *(
        "[z-a].py",
        "[!z-a].c",
        "[]-a]",
        "[]",
        "[!]",
        "[",
        "[a",
        "a[",
        "[a-",
        "[a-]",
        "[-a]",
        "[a\\]",
        "[\\a].c",
    ),
    *("[\\]]", "[^a].c", "[a!].c", "[[:alpha:]].c", "[[:x:]].c", "[a-c-e].d", "a.c\\", "[z-a", "[!a-].c"),
]


@pytest.mark.parametrize("pattern", ODD)
def test_odd_sets_mean_what_git_says(repository: Path, pattern: str) -> None:
    """A range that runs backwards, a set without an end: they stand in people's files, and break nothing."""
    assert left_out([pattern]) == left_out_by_git(repository, [pattern])


def test_any_sets_mean_what_git_says(repository: Path) -> None:
    draw = Random(11)
    parts = ("[", "]", "!", "^", "-", "\\", "a", "c", "z", "0", "*", "[:alpha:]")
    for _ in range(60):
        pattern = (
            "["
            + "".join(draw.choice(parts) for _ in range(draw.randint(1, 6)))
            + "]"
            + draw.choice(["", ".c"])
        )
        assert left_out([pattern]) == left_out_by_git(repository, [pattern]), pattern


def test_an_odd_pattern_in_an_ignore_file_stops_no_upload(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "zed")
    (tmp_path / ".gitignore").write_text("[z-a]\n[b\n")
    assert names(pack_working_dir(tmp_path)) == [".gitignore", "train.py", "zed"]


def test_any_patterns_mean_what_git_says(repository: Path) -> None:
    """Where libraries differ from git: `**` at an end, and what is taken back in a folder."""
    draw = Random(7)
    parts = ("a", "x", "*", "**", "?", "[a-d]", "[!a]", "*.c", "d*", "\\a", "deep", "b")
    for _ in range(60):
        lines = []
        for _ in range(draw.randint(1, 4)):
            middle = "/".join(draw.choice(parts) for _ in range(draw.randint(1, 3)))
            lines.append(
                draw.choice(["", "", "!"]) + draw.choice(["", "/"]) + middle + draw.choice(["", "/"])
            )
        assert left_out(lines) == left_out_by_git(repository, lines), lines
