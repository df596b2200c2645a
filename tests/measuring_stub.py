"""A measuring process that measures nothing and loads no torch: it writes the journal of three cases at once.

For tests of the supervisor alone: ``monkeypatch.setattr(process, "pytest_command", measuring_stub.command)``.
"""

import sys

SIZES = (8, 16, 32)


def command(paths, options, python=sys.executable):
    return [python, __file__, *options]


def main(words):
    import records

    from gpubench.runfile.ledger import Follower, Ledger, missing
    from gpubench.runfile.matching import matcher
    from gpubench.runfile.schema import Case

    given = dict(word.removeprefix("--gpubench-").split("=", 1) for word in words if "=" in word)
    cases = {f"test_good.py::test_neg[{n}]": Case("good.neg", "cpu", "float32", {"n": n}, size="n") for n in SIZES}
    if "match" in given:
        matches = matcher(given["match"])
        cases = {name: case for name, case in cases.items() if matches([name, case.id])}
    if not cases:
        return 5
    process = int(given["process"].split("/")[0])
    names = missing(Follower(given["ledger"], begin=True).events(), process)
    cases = {name: case for name, case in cases.items() if names is None or name in names}
    run = records.run_file([])
    facts = {key: run[key] for key in ("machine_info", "commit_info", "datetime", "version", "gpubench")}
    facts |= {"estimated_s": 1.0, "fingerprint": {"code": "stub"}}
    identities = {name: case.as_dict() for name, case in cases.items()}
    ledger = Ledger(given["ledger"])
    ledger.append("session", process=process, cases=list(cases), identities=identities, **facts)
    for name, case in cases.items():
        ledger.append("start", process=process, fullname=name, name=name, case=case.as_dict())
        benchmark = records.benchmark(case, 1e-3) | {"fullname": name}
        ledger.append("end", process=process, fullname=name, status="ok", benchmark=benchmark)
    ledger.append("finish", process=process)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
