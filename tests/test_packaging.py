"""Published files are true: versions that run, and the files that tests need."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RUN_FROM_THE_ARCHIVE = (
    "tests/runfile/test_quantities.py",
    "tests/runfile/test_flags.py",
    "tests/report/test_tables.py",
)


def test_each_python_that_is_named_is_tested():
    workflow = (ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8")
    (tested,) = re.findall(r"^ +python: (\[.+\])$", workflow, re.MULTILINE)
    named = re.findall(r":: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    assert named == ast.literal_eval(tested)
    assert PROJECT["requires-python"] == f">={named[0]}"
    assert "tox run -e lowest" in workflow


def test_each_action_is_pinned_by_its_commit():
    paths = [ROOT / "docs/ci.md", *(ROOT / ".github/workflows").glob("*.yml")]
    used = re.findall(r"uses: (.+)", "\n".join(path.read_text(encoding="utf-8") for path in paths))
    assert len(used) > 12
    assert [action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", action)] == []


def test_the_page_pins_the_matplotlib_that_draws_our_pictures():
    (pin,) = re.findall(r"matplotlib==\S+", (ROOT / "docs/pictures-and-tables.md").read_text(encoding="utf-8"))
    assert pin in (ROOT / "constraints.txt").read_text(encoding="utf-8").split()


# What is installed ---------------------------------------------------------------------------------------------------


def test_the_installed_suite_finds_its_own_modules_in_workers_too(tmp_path):
    """It is ``gpubench.benchmarks`` there, and ``benchmarks`` in a checkout."""
    site, ignored = tmp_path / "site", shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "gpubench", site / "gpubench", ignore=ignored)
    shutil.copytree(ROOT / "benchmarks", site / "gpubench/benchmarks", ignore=ignored)
    suite, options = site / "gpubench/benchmarks/test_distributed.py", ("-k", "linear and ddp", "-c", os.devnull)
    command = [sys.executable, "-m", "pytest", suite, *options, f"--rootdir={site}", "-p", "no:cacheprovider"]
    command += ["-p", "gpubench.plugin", "--gpubench-preset=smoke", "--gpubench-no-ceilings"]
    known = os.environ | {"PYTHONPATH": str(site)}
    done = subprocess.run(command, cwd=tmp_path, env=known, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


# The source archive ---------------------------------------------------------------------------------------------------


def test_the_source_archive_holds_what_its_tests_need(tmp_path):
    build = "from setuptools import build_meta; build_meta.build_sdist({0!r}); build_meta.build_wheel({0!r})"
    tree = copied(tmp_path / "tree")
    command = [sys.executable, "-c", build.format(str(tmp_path))]
    done = subprocess.run(command, cwd=tree, check=True, capture_output=True, text=True)
    assert "is absent from the `packages` configuration" not in done.stdout + done.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.glob("pytest_gpubench-*/")
    kept = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    tracked = {name for name in tracked_files() if not name.startswith(".git") and (ROOT / name).exists()}
    assert tracked - kept == set()
    assert [name for name in kept if "__pycache__" in name] == []
    described = (folder / "PKG-INFO").read_text(encoding="utf-8")
    assert "Author: The gpubench developers" in described
    assert "Description-Content-Type: text/markdown" in described
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *RUN_FROM_THE_ARCHIVE]
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def tracked_files() -> list[str]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout:
        pytest.skip("not in a repository: which files belong to the project isn't known")
    return done.stdout.splitlines()


def copied(target: Path) -> Path:
    """The project's files in another folder: building leaves some beside them."""
    for name in tracked_files():
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes((ROOT / name).read_bytes())
    return target
