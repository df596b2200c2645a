"""What pyproject.toml can't say: rooms are found, and the benchmarks beside the package are installed inside it."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["gpubench", "gpubench.*"]), "gpubench.benchmarks"],
    package_dir={"gpubench.benchmarks": "benchmarks"},
)
