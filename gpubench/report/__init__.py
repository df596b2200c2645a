"""Tables, charts and a summary from run files of any number of machines. Never imports torch.

``options`` declares the command line, ``command`` runs it: run files → :mod:`.table` (one tidy frame) →
:mod:`.pairs` (speedups) → :mod:`.figures` (what to draw, as plain data) → :mod:`.draw` (pictures) and
:mod:`.summary` (words) → :mod:`.output` (everything written at the end, or nothing).
"""
