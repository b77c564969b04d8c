"""README.md and the pages under docs/ say what is so: paths, links, commands, what runs, and the Python example."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from twostroke.cli.main import COMMANDS
from twostroke.models.load import MATRIX_TYPES
from twostroke.models.registry import FAMILIES
from twostroke.text.pretokenizer import PRE_TOKENIZER_KINDS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def section(title: str) -> str:
    """The text under a heading of the README."""
    return README.partition(f"## {title}\n")[2].partition("\n## ")[0]


def quoted(line_start: str) -> list[str]:
    """What stands in backquotes in the item of "What runs" that begins so, up to the first full stop."""
    item = section("What runs").partition(f"- {line_start}")[2].partition(".\n")[0]
    return re.findall(r"`([^`]+)`", item)


def tree_paths() -> Iterator[str]:
    """The paths of the annotated tree: words before two spaces, in the folder of the line less indented."""
    folder = ""
    for indent, names in re.findall(r"^    ( *)(\S+(?: \S+)*?)(?:  .*)?$", section("The repository"), re.MULTILINE):
        for name in names.split():
            yield (folder if indent else "") + name
        folder = folder if indent else names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text("utf-8"))
    assert not [link for link in links if not (page.parent / link).exists()]


def test_the_tree_is_there() -> None:
    paths = list(tree_paths())
    assert "csrc/executor*" in paths and "src/twostroke/cli/" in paths
    missing = [path for path in paths if not list(ROOT.glob(path.rstrip("/"))) and not list(ROOT.glob(f"{path}.*"))]
    assert not missing
    packages = {path.parent.name for path in (ROOT / "src/twostroke").glob("*/__init__.py")}
    assert packages == {Path(path).name for path in paths if re.fullmatch("src/twostroke/.+/", path)}


def test_commands_are_those_that_exist() -> None:
    assert sorted(re.findall(r"^\| `twostroke (\w+)", section("Commands"), re.MULTILINE)) == sorted(COMMANDS)


def test_what_runs_is_what_the_code_accepts() -> None:
    lists = ("Architectures", "From Hugging Face directories also", "Costed")
    assert set(FAMILIES) <= {name for each in lists for name in quoted(each)}
    types = section("What runs").partition("- Tensor types: ")[2].partition(".")[0]
    assert re.findall(r"\w+", types) == [kind.name for kind in MATRIX_TYPES if kind.is_in_gguf]
    assert set(quoted("Tokenizers")) - {"tokenizer.json"} < set(PRE_TOKENIZER_KINDS)
    assert f"{len(PRE_TOKENIZER_KINDS)} pre-tokenizer kinds" in section("What runs")


def test_the_python_example_runs(smollm2_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", section("From Python"), re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    assert "Paris" in capsys.readouterr().out.splitlines()[0]
