"""The site: it builds without a warning, its links lead somewhere, and it needs no network."""

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from cmbpo.settings.overrides import names
from cmbpo.settings.registry import ALGORITHMS, reads
from tests.tasks.drawing.test_painter import software_rendering

ROOT = Path(__file__).parents[1]
FETCHED = {"script": "src", "img": "src", "link": "href", "source": "src", "iframe": "src"}
"""Elements that a browser loads something for, and where they say what."""


class Page(HTMLParser):
    """The anchors of a page, where its links lead, and what it loads."""

    def __init__(self, text: str):
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if (place := given.get(FETCHED.get(tag, ""))) and given.get("rel") != "canonical":
            self.loads.append(place)

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages by where they are, from the command of `make site`."""
    out = tmp_path_factory.mktemp("site")
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").split("\nsite: ")[1].splitlines()[1]
    command = recipe.split()
    assert command[0] == "$(BIN)/python"
    assert command[-1] == "build/site"
    made = [sys.executable, *command[1:-1], str(out)]
    done = subprocess.run(made, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return {path: Page(path.read_text(encoding="utf-8")) for path in out.rglob("*.html")}


def page_of(site, name: str) -> Page:
    (found,) = [page for path, page in site.items() if path.as_posix().endswith(f"/{name}.html")]
    return found


def test_every_link_of_the_site_leads_somewhere(site):
    for path, page in site.items():
        for target in [*page.links, *page.loads]:
            parts = urlsplit(target)
            if parts.scheme == "data":
                continue
            if parts.scheme:
                assert parts.scheme in ("https", "mailto"), f"{path.name}: {target}"
                assert "." in parts.netloc or parts.scheme == "mailto", f"{path.name}: {target}"
                continue
            place = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert place.is_file(), f"{path.name}: {target} is not there"
            if parts.fragment and place in site:
                anchors = site[place].anchors
                assert unquote(parts.fragment) in anchors, f"{path.name}: {target}"


def test_the_site_loads_nothing_from_a_network(site):
    assert len(site) > 20
    for path, page in site.items():
        for place in page.loads:
            assert urlsplit(place).scheme in ("", "data"), f"{path.name} loads {place}"
    for style in next(iter(site)).parent.parent.rglob("*.css"):
        assert "@import" not in style.read_text(encoding="utf-8"), style
        assert "url(http" not in style.read_text(encoding="utf-8"), style


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_page_of_an_algorithm_has_every_setting_that_it_reads(site, algo):
    words = set(page_of(site, f"algorithms/{algo}").words)
    for name in names():
        if name not in ("algo", "env_id", "preset"):
            flag = f"--{name.replace('_', '-')}"
            assert (flag in words) == reads(algo, name), flag


def test_the_page_of_cpo_says_what_it_reached_and_by_which_equation(site):
    said = "".join(page_of(site, "algorithms/cpo").words)
    assert "λ² = (q − r_Aᵀ S_A⁻¹ r_A)" in said
    assert "HalfCheetahSafe, 3000" in said
    assert "TRPO" not in said.split("What it reached")[1].split("Its settings")[0]


def test_the_reference_has_every_public_name(site):
    import cmbpo

    anchors = page_of(site, "docs/api").anchors
    for name in cmbpo.__all__:
        if name not in ("__version__", "tasks"):
            assert f"cmbpo.{name}" in anchors
    assert {"cmbpo.Agent.learn", "cmbpo.tasks.get"} <= anchors


def test_the_notebook_holds_no_place_of_whoever_ran_it_and_no_error():
    text = (ROOT / "docs" / "first_run.ipynb").read_text(encoding="utf-8")
    assert "/home/" not in text
    assert "/tmp/" not in text
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert all(output["output_type"] != "error" for output in outputs)
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2


@pytest.mark.slow
@pytest.mark.skipif(not software_rendering(), reason="neither EGL nor OSMesa is installed")
def test_the_notebook_runs_as_it_stands_and_what_it_learned_is_safe(tmp_path):
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(ROOT / "docs" / "first_run.ipynb", as_version=4)
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=900, kernel_name="python3", resources=place).execute()
    drawn = [o for cell in notebook.cells for o in cell.get("outputs", []) if "data" in o]
    assert sum("image/png" in output["data"] for output in drawn) == 2
    (said,) = [
        output["text"]
        for cell in notebook.cells
        if "agent.evaluate" in cell.source
        for output in cell.outputs
    ]
    without_noise, with_noise = (line.replace(",", "").split() for line in said.splitlines())
    for _, earned, _, _, _, cost, *_ in (without_noise, with_noise):
        assert float(earned) > 1600.0
        assert float(cost) <= 10.0
