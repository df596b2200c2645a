"""Two sets of run files, and whether anything changed between them. Never imports torch.

``sides`` reads them into processes, ``facts`` says whether they may be compared, ``verdict`` judges, ``table``,
``document`` and ``picture`` show it, ``command`` ties them together; ``export`` writes the formats of other tools.
"""
