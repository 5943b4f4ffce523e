"""Outputs that are ASCII's, closed, full or unread: nothing dies of what it has to say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cmbpo import streams

PRINTS = "from cmbpo import streams; streams.prepare(); print({!r}); print('last')"


def run(code: str, redirection: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    command = f'"$0" -c "$1" {redirection}'
    return subprocess.run(
        ["bash", "-c", command, sys.executable, code],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )


def test_what_an_output_has_no_sign_for_is_written_plainly():
    assert streams.printable("α → 0.3 – first …", "ascii") == "alpha -> 0.3 - first ..."
    assert streams.printable("雪\udcff", "ascii") == "??"
    assert streams.printable("α …", "utf-8") == "α …"


def test_an_ascii_output_takes_every_character():
    done = run(PRINTS.format("cost ≤ 10 … 雪 \udcff"), PYTHONIOENCODING="ascii")
    assert done.stdout == "cost <= 10 ... ? ?\nlast\n"
    assert done.returncode == 0


def test_a_name_that_is_no_text_can_be_printed():
    assert run(PRINTS.format("run\udcff")).stdout == "run?\nlast\n"


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_closed_output_is_none_that_a_file_could_take_the_place_of(redirection, tmp_path):
    kept = tmp_path / "kept.txt"
    code = (
        "from cmbpo import streams; streams.prepare(); import sys, os\n"
        f"with open({str(kept)!r}, 'w') as file:\n"
        "    assert file.fileno() > 2\n"
        "    print('lost'); print('lost', file=sys.stderr); os.system('echo lost; echo lost >&2')\n"
        "    file.write('kept')\n"
    )
    assert run(code, redirection).returncode == 0
    assert kept.read_text() == "kept"


def test_a_full_output_is_named():
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    code = PRINTS.format("x") + (
        "\nimport sys\n"
        "try: sys.stdout.flush()\n"
        "except OSError as error: print(error.filename, error.strerror, file=sys.stderr)\n"
        "streams.go_silent(1)"
    )
    done = run(code, "> /dev/full")
    assert done.stderr.strip() == "standard output No space left on device"
    assert done.returncode == 0


@pytest.mark.parametrize("terminal", [True, False])
def test_how_far_something_is_is_shown_on_a_terminal_only(terminal, monkeypatch, capfd):
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    with streams.bars("reading", "drawing") as watch:
        watch("reading", 0.5)
    printed = capfd.readouterr()
    assert ("reading" in printed.err) == terminal
    assert printed.out == ""
