"""What may be published, and sixty ways in which a card may not. The GPU of the good card is made up, within what the
datasheet of the GPU that it is called after allows."""

from __future__ import annotations

import copy
import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
import records

from gpubench.commands import share
from gpubench.commands.cli import main
from gpubench.runfile.card import DIGITS, card_of, card_text
from gpubench.runfile.reader import content_of
from gpubench.runfile.schema import KEY

RESULTS = Path(__file__).resolve().parents[2] / "results"
CPU, GPU = "AMD EPYC 9654", "NVIDIA H200"


def of_gpu() -> dict[str, Any]:
    data = records.gpu_run(processes=3)
    kept = {*range(0, len(data["benchmarks"]), 6)}
    data["benchmarks"] = [
        mark for place, mark in enumerate(data["benchmarks"]) if place in kept or "test_square[" in mark["name"]
    ]
    facts = data["machine_info"][KEY]
    facts["devices"] = [records.CPU | {"label": CPU}, records.GPU | {"label": GPU, "driver": "580.95.05"}]
    facts["cpu"] |= {"model": CPU, "cores": 96, "logical_cpus": 192, "memory_bytes": 10**12}
    data[KEY] |= {"finished": "2026-01-31T12:20:00+00:00"}
    for case in data[KEY]["unmeasured"]:
        case["reason"] = "not in preset quick"
    return data


@pytest.fixture(scope="module")
def good() -> dict[str, Any]:
    return card_of(of_gpu(), Path("good.json"))


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """The exit code and what is printed for a card, or the bytes of one; further ``cards`` lie beside it."""

    def check(*cards: Any, words: tuple[str, ...] = ()) -> tuple[int, str]:
        names = []
        for number, card in enumerate(cards):
            names.append(tmp_path / f"card{number}.json")
            names[-1].write_bytes(card if isinstance(card, bytes) else card_text(card).encode())
        code = main(["check", *map(str, names), *words])
        return code, capsys.readouterr().out

    return check


# What is wrong with a card --------------------------------------------------------------------------------------------


def ours(card: dict[str, Any], expression: str = "") -> list[dict[str, Any]]:
    """What was measured of the benchmarks whose workload, device and dtype match."""
    found = [mark["extra_info"][KEY] for mark in card["benchmarks"]]
    return [each for each in found if re.search(expression, f"{each['workload']} {each['device']} {each['dtype']}")]


def short(value: float) -> float:
    """With a card's digits: or they would give the editor away."""
    return float(f"{value:.{DIGITS}g}")


def scale(card: dict[str, Any], factor: float, expression: str = "") -> None:
    """All times of the benchmarks, as somebody would who edits a file."""
    chosen = [id(each) for each in ours(card, expression)]
    for mark in card["benchmarks"]:
        own = mark["extra_info"][KEY]
        if id(own) in chosen:
            for name in ("median", "mean", "min", "iqr", "q1", "q3"):
                mark["stats"][name] = short(mark["stats"][name] * factor)
            for process in own["processes"]:
                process["median_s"] = short(process["median_s"] * factor)


def everywhere(card: dict[str, Any], old: str, new: str) -> None:
    changed = json.loads(json.dumps(card).replace(old, new))
    card.clear()
    card.update(changed)


def at(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def put(card: dict[str, Any]) -> None:
        *outer, last = path
        for name in outer:
            card = card.setdefault(name, {}) if isinstance(card, dict) else card[name]
        card[last] = value

    return put


def times(factor: float, *path: Any) -> Callable[[dict[str, Any]], None]:
    def put(card: dict[str, Any]) -> None:
        *outer, last = path
        for name in outer:
            card = card[name]
        each = card[last]
        each = (
            {name: short(rate * factor) for name, rate in each.items()}
            if isinstance(each, dict)
            else short(each * factor)
        )
        card[last] = each

    return put


def wrote(words: str) -> Callable[[dict[str, Any]], None]:
    """In a text that measuring wrote."""
    return lambda card: ours(card)[0].update(device_reason=words)


def bandwidth(factor: float) -> Callable[[dict[str, Any]], None]:
    def put(card: dict[str, Any]) -> None:
        for entry in card[KEY]["ceilings"]["cuda:0"]["bandwidth"]:
            entry["byte_per_s"] = short(entry["byte_per_s"] * factor)

    return put


def flag(name: str, share: float) -> Callable[[dict[str, Any]], None]:
    def put(card: dict[str, Any]) -> None:
        for each in ours(card)[: int(share * len(ours(card)))]:
            for process in each["processes"]:
                process["flags"] = [{"flag": name}]

    return put


def one_process(card: dict[str, Any]) -> None:
    card[KEY]["processes"] = card[KEY]["processes"][:1]
    for each in ours(card):
        each["processes"] = each["processes"][:1]


def copied_process(card: dict[str, Any]) -> None:
    for each in ours(card):
        each["processes"][2]["median_s"] = each["processes"][0]["median_s"]


def edited(card: dict[str, Any]) -> None:
    """Every process half as long, and the statistics forgotten."""
    for process in ours(card, "matmul")[0]["processes"]:
        process["median_s"] = short(process["median_s"] / 2)


def renamed_dtype(card: dict[str, Any]) -> None:
    for each in ours(card, "matmul.square cuda:0 bfloat16"):
        each.update(dtype="float64", params={"n": each["params"]["n"] + 1})


def energy(card: dict[str, Any]) -> None:
    for each in ours(card, "cuda"):
        each["energy_j"] = short(each["energy_j"] * 10)


def impossible_work(card: dict[str, Any]) -> None:
    """A thousand times as much of it, and of the CPU's peaks, in a data type that those say nothing about."""
    for each in ours(card, "matmul.square cpu float32"):
        each["work"]["flops"] = short(each["work"]["flops"] * 1e4)
    card[KEY]["ceilings"]["cpu"]["throughput"] = {}
    card["machine_info"][KEY]["cpu"]["instructions"] = ["avx2", "fma"]


MUTATIONS: dict[str, tuple[Any, str]] = {
    # what it is called: what somebody did, and a part of the reason
    "faster than light": (lambda card: scale(card, 0.01, "matmul.square cuda:0 float32"), "faster than an H200 can be"),
    "renamed GPU": (lambda card: everywhere(card, GPU, "NVIDIA GeForce RTX 4060"), "datasheet of the RTX 4060"),
    "smoke": (at(KEY, "preset", value="smoke"), "smoke run"),
    "unknown preset": (at(KEY, "preset", value="turbo"), "unknown preset"),
    "stage of a comparison": (at(KEY, "stage", value="screen"), "part of a comparison"),
    "path": (wrote("No such file: /srv/data/corpus/x.bin (tried twice)"), "holds a path"),
    "machine of a company": (wrote("other programs on node7.corp"), "node7.corp"),
    "machine of a person": (at("machine_info", KEY, "cpu", "allocator", value="DESKTOP-8GH3KQ2"), "DESKTOP-8GH3KQ2"),
    "serial number": (
        at("machine_info", KEY, "devices", 1, "driver", value="GPU-0f3c9a52-1b2d-4c5e-9f00-123456789abc"), "a name",
    ),
    "path in a variable": (at("machine_info", KEY, "cpu", "variables", value={"OMP_PLACES": "/home/jane/p"}), "a path"),
    "host name": (at("machine_info", "node", value="jane-pc"), "machine_info.node: not what gpubench export"),
    "name given by its owner": (at("machine_info", KEY, "label", value="Jane"), "gpubench.label: not what gpubench"),
    "single rounds": (at("benchmarks", 0, "stats", "data", value=[1e-3] * 3), "samples, as many as|stats.data: not"),
    "seconds are milliseconds": (lambda card: scale(card, 1e3), "the whole run took 1.2e.03 s: seconds in another"),
    "seconds are kiloseconds": (lambda card: scale(card, 1e-3), "faster than its peaks"),
    "one faster than its CPU": (lambda card: scale(card, 1e-2, "matmul.square cpu float32"), "as fast as the measured"),
    "peaks in GFLOP/s": (times(1e-9, KEY, "ceilings", "cuda:0", "throughput"), "0% of the datasheet of the H200"),
    "bandwidth in GB/s": (bandwidth(1e-9), "memory bandwidth: .* of the datasheet"),
    "peak above the datasheet": (times(2, KEY, "ceilings", "cuda:0", "throughput"), "of bfloat16: 1.57 PFLOP/s, 159%"),
    "bandwidth above the datasheet": (bandwidth(1.5), "memory bandwidth: .* the datasheet"),
    "copies above the link": (times(4, KEY, "ceilings", "cuda:0", "host_to_device_byte_per_s"), "copies to it: 208 GB"),
    "CPU's peak above its instructions": (times(1e6, KEY, "ceilings", "cpu", "throughput"), "instructions allow"),
    "power": (energy, "kW; the limit of the H200 is 700 W"),
    "negative time": (at("benchmarks", 3, "stats", "median", value=-1e-3), r"benchmarks\[3\].stats.median: expected"),
    "no peaks": (lambda card: card[KEY].pop("ceilings"), "the measured peaks of cuda:0 are missing"),
    "another schema": (at(KEY, "schema_version", value=2), "gpubench.schema_version: expected 1"),
    "median above its quartile": (times(3, "benchmarks", 3, "stats", "median"), "don't fit together"),
    "least above the median": (times(3, "benchmarks", 3, "stats", "min"), "don't fit together"),
    "edited processes": (edited, "don't fit together"),
    "tomorrow": (at(KEY, "started", value="2999-01-01T00:00:00+00:00"), "measured on 2999-01-01: the machine's clock"),
    "1970": (at(KEY, "started", value="1970-01-01T00:00:00+00:00"), "measured on 1970-01-01: the machine's clock"),
    "ended before it began": (at(KEY, "finished", value="2026-01-31T11:00:00+00:00"), "ended before it began"),
    "ended in another year": (at(KEY, "finished", value="2999-01-31T12:20:00+00:00"), "measured on 2999-01-31"),
    "no date": (lambda card: card[KEY].pop("finished"), "when it was measured isn't known"),
    "one process": (one_process, "fewer than 3 processes"),
    "copied process": (copied_process, "processes 0 and 2 have the same times"),
    "benchmark twice": (lambda card: card["benchmarks"].append(copy.deepcopy(card["benchmarks"][0])), "several times"),
    "unknown flag": (flag("splendid", 0.1), "unknown flags: splendid"),
    "unknown data type": (lambda card: ours(card)[0].update(dtype="float8"), "unknown data types: float8"),
    "renamed data type": (renamed_dtype, "faster than an H200 can be"),
    "modelled": (lambda card: everywhere(card, GPU, f"{GPU} (modelled)"), "is modelled: only what was measured"),
    "simulated": (at("machine_info", KEY, "devices", 1, "simulated", value=True), "is modelled: only what was"),
    "noisy": (flag("noisy", 0.7), "are noisy: measure again on an idle machine"),
    "busy": (flag("contended", 0.4), "measured while other programs ran"),
    "own benchmark": (lambda card: ours(card)[0].update(kind="", workload="my.plan"), "not a benchmark of the suite"),
    "unknown device": (lambda card: everywhere(card, '"cuda:0"', '"cuda:1"') or at(
        "machine_info", KEY, "devices", 1, "name", value="cuda:0")(card), "doesn't have: cuda:1"),
    "CPU with two names": (at("machine_info", KEY, "cpu", "model", value="Intel Xeon"), "the CPU has two names"),
    "nothing measured": (at("benchmarks", value=[]), "no benchmark was measured"),
    "advertisement": (lambda card: ours(card)[0].update(title="Cheap GPUs: cheapgpus"), "title: no text that gpubench"),
    "words of one's own": (lambda card: ours(card)[0].update(params={"n": "hello grandma"}), "no text that gpubench"),
    "name of a parameter": (lambda card: ours(card)[0].update(params={"grandma": 1}), "no text that gpubench writes"),
    "long reason": (wrote("the call " * 40), "device_reason: no text that gpubench writes there"),
    "HTML": (lambda card: everywhere(card, CPU, f"<b>{CPU}</b>"), "cpu.model: no text that gpubench writes there"),
    "Markdown": (at("machine_info", KEY, "libraries", value={"numpy": "[2.0](x)"}), "numpy: no text that gpubench"),
    "letter for a name": (lambda card: everywhere(card, GPU, f"{GPU} with greetings " * 3), "label: no text that"),
    "letter for a version": (at(KEY, "version", value="0.1.0 " * 60), "version: no text that gpubench writes there"),
    "more threads than CPUs": (at("machine_info", KEY, "threads", value=1000), "more threads or cores than CPUs: 1000"),
    "threads of one benchmark": (lambda card: ours(card)[0].update(threads=1000), "more threads or cores than"),
    "wrong result": (lambda card: ours(card)[0].update(check={"status": "passed", "error": 0.9}), "wrong results"),
    "cores": (at("machine_info", KEY, "cpu", "cores", value=10_000), "more threads or cores than CPUs: 10000"),
    "first call": (lambda card: ours(card)[0].update(first_call_s=1e6), "the whole run took 1.2e.03 s: seconds in"),
    "rounds": (lambda card: ours(card)[0]["processes"][0].update(rounds=999), "rounds, least time, .* fit together"),
    "device twice": (
        lambda card: card["machine_info"][KEY]["devices"].append(card["machine_info"][KEY]["devices"][1]), "cuda:0",
    ),
    "impossible work": (impossible_work, "is more than its instructions allow"),
}  # fmt: skip


def test_the_good_one_may_be_published(good, check) -> None:
    assert check(good) == (0, check(good)[1])
    assert "may be published" in check(good)[1]
    assert "unusual" not in check(good)[1]


@pytest.mark.parametrize("kind", MUTATIONS)
def test_a_bad_card_is_refused_with_a_reason(kind, good, check) -> None:
    change, reason = MUTATIONS[kind]
    bad = copy.deepcopy(good)
    change(bad)
    code, printed = check(bad)
    assert code == 1
    assert re.search(reason, printed), printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'{"benchmarks": [', "file: expected JSON"),
        (b"[]", "file: expected a pytest-benchmark file"),
        (b'{"benchmarks": []}', "a file of pytest-benchmark alone has no card"),
        (b"", "empty file"),
    ],
)
def test_what_is_no_card_is_refused(content, reason, check) -> None:
    code, printed = check(content)
    assert code == 1
    assert reason in printed


def test_a_card_is_written_as_ours_are(good, check) -> None:
    """Else a key could be written twice, and people would see the other value."""
    content = card_text(good).encode()
    for other in (json.dumps(good).encode(), content.replace(b'"card":true', b'"card":true,"card":true')):
        assert "not written as gpubench export" in check(other)[1]
    assert check(content.replace(b'"median":', b'"median":[NaN],"x":', 1))[0] == 1


def test_copies_are_refused_whatever_they_are_called(good, check) -> None:
    scaled = copy.deepcopy(good)
    scale(scaled, 1.01)
    everywhere(scaled, CPU, "AMD EPYC 9755")
    code, printed = check(good, scaled)
    assert code == 1
    assert re.search(r"card0.json: refused\n  a copy of .*card1.json, all times 0.99 times as long", printed)
    assert re.search(r"card1.json: refused\n  a copy of .*card0.json, all times 1.01 times as long", printed)


def test_published_cards_are_held_against_it_and_not_judged(good, check, tmp_path) -> None:
    known = tmp_path / "known"
    known.mkdir()
    (known / "copy.json").write_text(card_text(good))
    assert f"a copy of {known}/copy.json\n" in check(good, words=("--known", str(known)))[1]
    slower = card_of(of_gpu(), Path("slower.json"))
    for number, each in enumerate(ours(slower)):  # another run: each time its own
        for process in each["processes"]:
            process["median_s"] = short(process["median_s"] * (1.5 + 0.01 * (number % 7) + 0.001 * process["process"]))
    (known / "copy.json").write_text(card_text(slower))
    code, printed = check(good, words=("--known", str(known)))
    assert code == 0
    assert re.search(rf"unusual: times are 0.6\d times those of {known}/copy.json", printed)
    assert printed.count("\n") == 2  # nothing of the known one, whose statistics don't fit


def test_a_gpu_without_a_datasheet_is_named(good, check) -> None:
    everywhere(unknown := copy.deepcopy(good), GPU, "NVIDIA H900 NVL")
    code, printed = check(unknown)
    assert code == 0
    assert "unusual: no datasheet of the NVIDIA H900 NVL is known" in printed
    everywhere(strange := copy.deepcopy(good), CPU, "Zhaoxin KaiXian KX-7000")
    assert "unusual: the name of the Zhaoxin KaiXian KX-7000 has words that no known" in check(strange)[1]
    wrote("grandma was asleep")(strange)
    assert "unusual: a reason in words that aren't gpubench's: 'grandma was asleep'" in check(strange)[1]


def test_annotations_can_be_closed_by_nobody(good, check) -> None:
    bad = copy.deepcopy(good)
    everywhere(bad, GPU, "NVIDIA%0A::set-output name=x::y (modelled)")
    code, printed = check(bad, words=("--format", "github"))
    assert code == 1
    assert re.search(
        r"^::error file=[^:]*card0.json::NVIDIA%250A::set-output name=x::y \(modelled\) is modelled", printed
    )
    assert all(line.startswith(("::error file=", "::warning file=")) for line in printed.splitlines())
    assert check(good, words=("--format", "github"))[1].startswith("::notice file=")


@pytest.mark.parametrize("path", sorted(RESULTS.glob("xeon-2-cores*/run.json")), ids=lambda path: path.parent.name)
def test_our_own_results_may_be_published(path, tmp_path, capsys) -> None:
    card = tmp_path / "card.json"
    assert main(["export", str(path), "--to", "card", "-o", str(card)]) == 0
    assert main(["check", str(path)]) == main(["check", str(card)]) == 0, capsys.readouterr().out
    assert card.stat().st_size < 300_000


def test_our_run_of_a_busy_machine_may_not(capsys) -> None:
    assert main(["check", str(RESULTS / "xeon-2.80ghz/run.json")]) == 1
    (reason,) = capsys.readouterr().out.splitlines()[1:]
    assert "noisy: measure again on an idle machine" in reason


def test_our_own_cards_may_be_published(capsys) -> None:
    assert main(["check", str(RESULTS / "machines")]) == 0, capsys.readouterr().out


def test_what_isnt_there_is_no_verdict(tmp_path, capsys) -> None:
    assert main(["check", str(tmp_path / "gone.json")]) == 2
    assert main(["check", str(tmp_path)]) == 2
    assert "no card in this folder" in capsys.readouterr().err


# share ----------------------------------------------------------------------------------------------------------------


def test_share_writes_the_card_and_prints_the_address_of_the_form(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "run.json").write_text(json.dumps(of_gpu()))
    monkeypatch.chdir(tmp_path)
    assert main(["share", "run.json", "--repository", "https://github.com/example/gpubench/"]) == 0
    printed = capsys.readouterr().out
    (card,) = tmp_path.glob("nvidia-h200-2026-01-31-*.json")
    assert card.read_text() == card_text(card_of(content_of(tmp_path / "run.json"), card))
    (address,) = re.findall(r"^https://\S+$", printed, re.MULTILINE)
    assert "H200" in dict(parse_qsl(address.partition("?")[2]))["title"]


@pytest.mark.parametrize("repository", ["https://github.com/example/gpubench/", "example/gpubench"])
def test_the_address_fills_fields_that_the_form_has(repository: str) -> None:
    place, _, query = share._form_address(repository, "H200 · Xeon, 64 threads").partition("?")
    assert place == "https://github.com/example/gpubench/issues/new"
    fields = dict(parse_qsl(query, strict_parsing=True))
    form = (RESULTS.parent / ".github/ISSUE_TEMPLATE" / fields.pop("template")).read_text()
    assert fields == {"title": "Machine: H200 · Xeon, 64 threads", "machine": "H200 · Xeon, 64 threads"}
    assert fields["title"].startswith(*re.findall('^title: "(.*)"$', form, re.MULTILINE))
    assert fields.keys() - {"title"} <= set(re.findall(r"^    id: (\w+)$", form, re.MULTILINE))


def test_share_names_no_address_that_nobody_can_open(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "run.json").write_text(json.dumps(of_gpu()))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(share, "_source", str)
    assert main(["share", "run.json"]) == 0
    assert "issues/new" not in (printed := capsys.readouterr().out)
    assert "--repository OWNER/NAME" in printed


def test_share_refuses_what_may_not_be_published(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    run = of_gpu()
    run[KEY]["preset"] = "smoke"
    (tmp_path / "run.json").write_text(json.dumps(run))
    assert main(["share", "run.json"]) == 1
    assert "run.json can't be published:\n  smoke run" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


# The workflow that makes a pull request of an issue -------------------------------------------------------------------

specification = importlib.util.spec_from_file_location("card_of_issue", RESULTS.parent / ".github/card_of_issue.py")
assert specification
assert specification.loader
card_of_issue = importlib.util.module_from_spec(specification)
specification.loader.exec_module(card_of_issue)
LINK, TICKED = "https://github.com/user-attachments/files/123/nvidia-h200.json", "- [X] I give the card … (CC0 1.0)"


def test_the_card_of_an_issue_is_the_file_that_is_attached() -> None:
    body = f"### Machine\n\nH200 `$(reboot)`\n\n### Card\n\n[card.json]({LINK})\n\n### Terms\n\n{TICKED}\n"
    assert card_of_issue.link_of(body) == LINK


@pytest.mark.parametrize(
    "body",
    [
        f"[card.json]({LINK})\n- [ ] … (CC0 1.0)",
        f"{LINK} {LINK.replace('123', '124')}\n{TICKED}",
        f"no card\n{TICKED}",
        *(
            f"{link}\n{TICKED}"
            for link in (
                LINK.replace("github.com", "github.com.evil.example"), LINK.replace("https", "http"),
                LINK.replace("nvidia", "../../../login/nvidia"), LINK.replace("nvidia", "$(reboot)"), LINK + "?x=1",
                LINK + "/../x", LINK.replace("files", "files/../files"), "file:///etc/passwd.json",
                LINK.replace("https://", "https://user@"),
            )
        ),
    ],
)  # fmt: skip
def test_other_addresses_and_untold_consent_are_refused(body) -> None:
    with pytest.raises(SystemExit) as end:
        card_of_issue.link_of(body)
    assert "box" in str(end.value) or "Expected one attached card" in str(end.value)


def test_no_text_of_an_issue_is_put_into_a_command() -> None:
    """Only its number, which GitHub has made."""
    workflow = (RESULTS.parent / ".github/workflows/machines.yml").read_text()
    used = set(re.findall(r"\$\{\{ *(.+?) *\}\}", workflow))
    assert used == {"github.event.issue.number", "github.token"}
