"""What pyproject.toml can't say: every room is found, and the benchmarks, beside the package in a checkout, lie in it."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["gpubench", "gpubench.*"]), "gpubench.benchmarks"],
    package_dir={"gpubench.benchmarks": "benchmarks"},
)
