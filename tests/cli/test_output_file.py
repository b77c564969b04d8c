"""A file that a command will write: refused before the work, and nothing changed by asking."""

from pathlib import Path

import pytest

from twostroke.cli.output_file import check_writable, write_text
from twostroke.errors import ConfigError


def test_asking_changes_nothing(tmp_path: Path) -> None:
    there, new, link = tmp_path / "there", tmp_path / "new", tmp_path / "link"
    there.write_text("as before")
    link.symlink_to(tmp_path / "target")
    for path in (there, new, link):
        check_writable(path)
    assert there.read_text() == "as before"
    assert {each.name for each in tmp_path.iterdir()} == {"there", "link"} and link.is_symlink()


@pytest.mark.parametrize("name", ["", "there/x", "absent/x", "x" * 300])
def test_what_cannot_be_written(name: str, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("a file, no folder")
    for ask in (check_writable, lambda path: write_text(path, "x")):
        with pytest.raises(ConfigError, match="cannot be written: "):
            ask(tmp_path / name)
