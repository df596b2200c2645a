"""What every command shares: names of others don't act on a terminal, and output that can't be written is an error."""

import contextlib
import json

import pytest
import records

from gpubench.commands.cli import main

NAME = "\x1b[31mred\x07\u202e\n\u2028x"


@pytest.fixture
def odd(tmp_path):
    """A results file in a folder with a name of control characters."""
    folder = tmp_path / NAME
    folder.mkdir()
    path = folder / "run.json"
    path.write_text(json.dumps(records.cpu_run()))
    return path


@pytest.mark.parametrize(
    "words",
    ["show GONE", "report GONE -o out", "run --resume FOLDER", "run GONE", "show RUN --ODD", "ODD",
     "compare RUN RUN", "chart RUN --kind time -o FOLDER/a.svg", "report RUN -o FOLDER/out --charts none"],
)  # fmt: skip
def test_a_name_acts_on_no_terminal(odd, words, capsys):
    places = {"GONE": f"{odd}.gone", "FOLDER": str(odd.parent), "RUN": str(odd), "ODD": NAME}
    arguments = words.split()
    for key, value in places.items():
        arguments = [word.replace(key, value) for word in arguments]
    with contextlib.suppress(SystemExit):  # of an option that isn't known
        main(arguments)
    printed = "".join(capsys.readouterr())
    assert "red" in printed
    assert printed.replace("\n", "").isprintable()


def test_a_loop_of_links_is_no_output(tmp_path, odd, capsys):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert main(["export", str(odd), "--to=csv", "-o", str(loop / "a.csv")]) == 2
    assert main(["export", str(loop), "--to=csv"]) == 2
    assert main(["compare", str(odd), str(loop)]) == 2
    assert capsys.readouterr().err.count("\n") == 3
