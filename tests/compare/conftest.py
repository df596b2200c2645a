"""Shared by the tests of ``compare``."""

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def save(tmp_path: Path):
    def save(name: str, data: Any) -> str:
        path = tmp_path / name
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        return str(path)

    return save
