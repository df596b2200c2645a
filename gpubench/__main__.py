"""Entry point of ``python -m gpubench``."""

from .commands.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
