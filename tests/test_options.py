"""Every option is declared once, and is known wherever it can be given."""

from __future__ import annotations

from dataclasses import fields

import pytest

from gpubench.commands import cli
from gpubench.compare import interleaved
from gpubench.compare.comparison import Comparison
from gpubench.measure.session import Settings
from gpubench.runfile import options
from gpubench.runfile.options import OF_PYTEST, OPTIONS, Option


def some_value(option: Option) -> str:
    if option.name == "implementation":
        return "numpy"
    return option.choices[-1] if option.choices else {int: "3", float: "5.0"}.get(option.type, "cpu")


def command_line(option: Option) -> tuple[str, str]:
    """One option as it is given, and as it is passed on to a measuring process."""
    if option.switch:
        return f"--{option.name}", option.flag
    return f"--{option.name}={some_value(option)}", f"{option.flag}={some_value(option)}"


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_option_is_taken_and_passed_on(option: Option) -> None:
    word, passed_on = command_line(option)
    times = 1 + option.repeatable
    args = cli.parser("run").parse_args([word] * times)
    assert options.given(args) == [option]
    assert options.passed_on(args) == [passed_on] * times
    assert options.passed_on(cli.parser("run").parse_args([])) == []


def test_measuring_in_turn_passes_all_options_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one of them a side's numbers would be of another seed, cache or variant than asked for."""
    received: list[str] = []

    def compare_in_turn(args: object, terms: object, pytest_options: list[str]) -> Comparison:
        received.extend(pytest_options)
        return Comparison((), (), (), 0.05)

    monkeypatch.setattr(interleaved, "compare_in_turn", compare_in_turn)
    words, passed_on = zip(*map(command_line, OPTIONS), strict=True)
    assert cli.main(["compare", "--interleave", "a", "b", *words, "--", "--durations=3"]) == 3
    assert received == [*passed_on, "--durations=3"]


def test_every_field_that_an_option_sets_exists_with_the_same_default() -> None:
    defaults = Settings()
    for option in (*OPTIONS, *OF_PYTEST):
        assert getattr(defaults, option.field) == option.default, option.name
    set_otherwise = {"brief", "max_time", "min_rounds", "min_time", "process", "processes"}
    assert {field.name for field in fields(Settings)} == {
        option.field for option in (*OPTIONS, *OF_PYTEST)
    } | set_otherwise


SESSION = """
def pytest_configure(config):
    from gpubench.plugin import settings
    from gpubench.runfile.options import OF_PYTEST, OPTIONS
    read = settings.read_settings(config)
    print({option.name: getattr(read, option.field) for option in (*OPTIONS, *OF_PYTEST)})
"""


@pytest.mark.parametrize("how", ["option", "ini"])
def test_every_option_reaches_the_session(pytester: pytest.Pytester, how: str) -> None:
    pytester.makeconftest(SESSION)
    words, keys, expected = [], [], {}
    for option in (*OPTIONS, *OF_PYTEST):
        if option.name == "threads":
            continue
        words.append(command_line(option)[1])
        keys.append(f"{option.ini} = {'true' if option.switch else some_value(option)}")
        value = not option.default if option.switch else option.parse(some_value(option))
        expected[option.name] = (value,) if option.repeatable else value
    if how == "ini":
        pytester.makeini("\n".join(["[pytest]", *keys]))
    result = pytester.runpytest_inprocess("--collect-only", "-q", *(words if how == "option" else []))
    (line,) = (line for line in result.outlines if line.startswith("{"))
    shown = eval(line)
    assert {name: shown[name] for name in expected} == expected


def test_alone_and_with_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert cli.main(["--help"]) == 0
    alone, _, asked = capsys.readouterr().out.partition("usage: ")[2].partition("usage: ")
    assert alone == asked
    assert [name for commands in cli.COMMANDS.values() for name in commands if f"\n  {name} " not in alone] == []
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("gpubench ")


def test_few_options_are_left() -> None:
    """43 options, 9 keys and 9 commands are as many as somebody can look through."""
    names = [name for commands in cli.COMMANDS.values() for name in commands]
    assert len(names) == 9
    taken = {word for name in names for action in cli.parser(name)._actions for word in action.option_strings[-1:]}
    assert len(taken - {"--help"}) <= 43
    assert len((*options._KEYS, "paths")) <= 9
