"""How many mutants a fuzz test tries: `pytest tests/fuzz --mutants N`, else 100, and 10,000 if marked `large`."""

import pytest

DEFAULT, LARGE = 100, 10_000


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutants", type=int, help="mutants that each fuzz test tries")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "num_mutants" in metafunc.fixturenames:
        asked = metafunc.config.getoption("--mutants", default=None)
        counts = [DEFAULT, pytest.param(LARGE, marks=pytest.mark.large)] if asked is None else [asked]
        metafunc.parametrize("num_mutants", counts)
