"""A measuring process that measures nothing and loads no torch: it writes the journal of three cases at once.

For tests of the supervisor alone: ``monkeypatch.setattr(process, "pytest_command", measuring_stub.command)``. It takes
more cases, each lasting a while, where its command ends with ``--cases=10 --pause=0.02``.
"""

import random
import sys
import time


def command(paths, options, python=sys.executable):
    return [python, __file__, *options]


def slow_command(paths, options, python=sys.executable):
    return [*command(paths, options, python), "--cases=10", "--pause=0.02"]


def main(words):
    import records

    from gpubench.runfile.ledger import Ledger, missing, recorded
    from gpubench.runfile.matching import matcher
    from gpubench.runfile.schema import Case
    from gpubench.supervise.child import die_with_supervisor

    die_with_supervisor()
    given = dict(word.removeprefix("--gpubench-").split("=", 1) for word in words if "=" in word)
    sizes, pause = [8 * 2**i for i in range(int(given.get("--cases", 3)))], float(given.get("--pause", 0))
    cases = {f"test_good.py::test_neg[{n}]": Case("good.neg", "cpu", "float32", {"n": n}, size="n") for n in sizes}
    if "match" in given:
        matches = matcher(given["match"])
        cases = {name: case for name, case in cases.items() if matches([name, case.id])}
    if not cases:
        return 5
    process = int(given["process"].split("/")[0])
    names = missing(recorded(given["ledger"]), process)
    cases = {name: case for name, case in cases.items() if names is None or name in names}
    ledger = Ledger(given["ledger"])
    ledger.add_event(**records.session(process, cases))
    for name, case in cases.items():
        start, end = records.begun_and_ended(process, name, case, 1e-3 + pause * random.random())
        ledger.add_event(**start)
        time.sleep(pause)
        ledger.add_event(**end)
    ledger.add_event("finish", process=process)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
