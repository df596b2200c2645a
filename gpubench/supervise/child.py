"""``python -m gpubench.supervise.child PYTEST-ARGUMENTS``: pytest, bound to the life of the process that started it."""

import sys

from .process import die_with_supervisor, import_from_here

if __name__ == "__main__":
    die_with_supervisor()
    import_from_here()

    import pytest

    raise SystemExit(pytest.main(sys.argv[1:]))
