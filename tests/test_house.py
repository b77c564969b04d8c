"""The house rules that a machine can check. Owns the checks and their limits, in one place.

Sizes count lines as an editor shows them; a function's docstring is not counted, since what it must state (shapes,
units, errors) is asked for.
"""

import ast
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import twostroke

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PYTHON = SOURCES + sorted(path for folder in ("tests", "benchmarks", "docs") for path in (ROOT / folder).rglob("*.py"))
NATIVE = sorted(path for ending in ("*.cpp", "*.h") for path in (ROOT / "csrc").rglob(ending))

MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_PARAMETERS, MAX_NATIVE_LINES = 300, 40, 7, 500
VAGUE_NAMES = ("util", "utils", "helper", "helpers", "common", "misc")
MUTATORS = {"append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem", "remove", "discard", "clear"}
LAZY = ("jinja2", "rich", "huggingface_hub", "pydantic", "starlette", "uvicorn", "safetensors", "llguidance")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def body_lines(function: Function) -> int:
    """Lines from `def` to the end, without the docstring's."""
    first = function.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = (first.end_lineno or 0) - first.lineno + 1 if is_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def num_parameters(function: Function) -> int:
    """Every parameter a caller can name or pass, `self` and `cls` aside."""
    arguments = function.args
    names = [argument.arg for argument in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]
    return len([name for name in names if name not in ("self", "cls")])


def global_state(tree: ast.Module) -> Iterator[str]:
    """What makes a module's globals state: a `global` statement, or a module-level name mutated in a function."""
    targets = [t for node in tree.body if isinstance(node, ast.Assign) for t in node.targets]
    targets += [node.target for node in tree.body if isinstance(node, ast.AnnAssign)]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    for function in functions(tree):
        local = {
            node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        local |= {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
        for node in ast.walk(function):
            if isinstance(node, ast.Global):
                yield f"line {node.lineno}: global {', '.join(node.names)}"
            elif (name := mutated_name(node)) in names - local:
                yield f"line {getattr(node, 'lineno', 0)}: {name} is changed"


def mutated_name(node: ast.AST) -> str | None:
    """The bare name that `node` changes in place, by `x[i] = `, `del x[i]`, `x.field = ` or `x.append()`; else None."""
    changed: ast.AST | None = None
    if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
        changed = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
        changed = node.func.value
    return changed.id if isinstance(changed, ast.Name) else None


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Every module an import may name: for `from a import b`, both a and a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def errors_as_they_print(tree: ast.AST) -> Iterator[str]:
    """Where an OSError is raised on as it prints itself, with its number; its words are `in_words(error)`."""
    for handler in (node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)):
        if "OSError" in {node.id for node in ast.walk(handler.type or handler) if isinstance(node, ast.Name)}:
            for raised in (node for node in ast.walk(handler) if isinstance(node, ast.Raise)):
                if handler.name in {shown_name(node) for node in ast.walk(raised)} - {None}:
                    yield f"line {raised.lineno}"


def shown_name(node: ast.AST) -> str | None:
    """The bare name that `node` makes a text of, by `f"{x}"` or `str(x)`; else None."""
    shown: ast.AST | None = node.value if isinstance(node, ast.FormattedValue) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
        shown = node.args[0]
    return shown.id if isinstance(shown, ast.Name) else None


# --- the rules --------------------------------------------------------------------------------------------------------


def test_there_is_something_to_check() -> None:
    assert ROOT / "src/twostroke/errors.py" in SOURCES
    assert Path(__file__) in PYTHON


def wrong_sizes(path: Path) -> Iterator[str]:
    if (num_lines := len(path.read_text(encoding="utf-8").splitlines())) > MAX_FILE_LINES:
        yield f"{num_lines} lines"
    for function in functions(parse(path)):
        if (lines := body_lines(function)) > MAX_FUNCTION_LINES:
            yield f"{function.name}: {lines} lines"
        if (parameters := num_parameters(function)) > MAX_PARAMETERS:
            yield f"{function.name}: {parameters} parameters"


def vague_names(path: Path) -> Iterator[str]:
    classes = [node.name for node in ast.walk(parse(path)) if isinstance(node, ast.ClassDef)]
    yield from (name for name in classes if name.endswith(("Manager", "Helper", "Utils")) or name.startswith("Base"))
    yield from (part for part in path.relative_to(ROOT).with_suffix("").parts if part in VAGUE_NAMES)


def found(paths: Iterable[Path], rule: Callable[[Path], Iterable[str]]) -> dict[str, list[str]]:
    """What breaks the rule, by file."""
    by_name = {name_of(path): list(rule(path)) for path in paths}
    return {name: broken for name, broken in by_name.items() if broken}


def test_python_sizes() -> None:
    assert found(PYTHON, wrong_sizes) == {}


def test_native_sizes() -> None:
    lines = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in NATIVE}
    assert {name: count for name, count in lines.items() if count > MAX_NATIVE_LINES} == {}


def test_a_module_says_what_it_owns() -> None:
    modules = [path for path in SOURCES if path.name != "__init__.py" or parse(path).body]
    assert [name_of(path) for path in modules if not ast.get_docstring(parse(path))] == []


def test_no_assert_in_the_package() -> None:
    def asserts(path: Path) -> Iterator[str]:
        return (f"line {node.lineno}" for node in ast.walk(parse(path)) if isinstance(node, ast.Assert))

    assert found(SOURCES, asserts) == {}


def test_no_global_state() -> None:
    assert found(SOURCES, lambda path: global_state(parse(path))) == {}


def test_errors_of_the_system_are_told_in_words() -> None:
    assert found(SOURCES, lambda path: errors_as_they_print(parse(path))) == {}


def test_names_say_something() -> None:
    assert found(SOURCES, vague_names) == {}


def test_native_alone_imports_the_core() -> None:
    others = [path for path in SOURCES if path.parent.name != "native"]
    assert [name_of(path) for path in others if "twostroke.native._core" in set(imported_modules(parse(path)))] == []


def test_all_is_what_the_package_exports() -> None:
    exported = getattr(twostroke, "__all__", [])
    tree = parse(ROOT / "src/twostroke/__init__.py")
    public = [a.asname or a.name for node in tree.body if isinstance(node, ast.ImportFrom) for a in node.names]
    missing = [name for name in public if not name.startswith("_") and name not in exported]
    unknown = [name for name in exported if not hasattr(twostroke, name)]
    assert (missing, unknown) == ([], [])
    assert len(set(exported)) == len(exported)


@pytest.mark.parametrize("module", ["twostroke", "twostroke.cli.main"])
def test_importing_is_cheap(module: str) -> None:
    """A list and not a time: these packages are imported where they are used, and never by the way."""
    if not (ROOT / "src" / Path(*module.split("."))).with_suffix(".py").exists() and module != "twostroke":
        pytest.skip(f"{module} does not exist yet")
    code = f"import sys, {module}; print(*[name for name in {LAZY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT / "src")
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [], "")


# --- the checks can fail ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("cache = {}\ndef f(x):\n    cache[x] = 1", "line 3: cache is changed"),
        ("seen: list[int] = []\ndef f(x):\n    seen.append(x)", "line 3: seen is changed"),
        ("count = 0\ndef f():\n    global count\n    count += 1", "line 3: global count"),
        ("TABLE = {}\ndef f(x):\n    del TABLE[x]", "line 3: TABLE is changed"),
        ("TABLE = {}\ndef f(x):\n    return TABLE[x]", None),
        ("cache = {}\ndef f(x):\n    cache = {}\n    cache[x] = 1\n    return cache", None),
        ("names = []\ndef f(names):\n    names.append(1)", None),
    ],
)
def test_global_state_is_seen(source: str, expected: str | None) -> None:
    assert list(global_state(ast.parse(source))) == ([expected] if expected else [])


def test_sizes_are_counted() -> None:
    source = 'class A:\n    def f(self, a, *, b):\n        """One.\n\n        Two.\n        """\n        return 1\n'
    (function,) = functions(ast.parse(source))
    assert (body_lines(function), num_parameters(function)) == (2, 2)


def test_the_core_is_seen_in_every_form_of_import() -> None:
    for source in (
        "from twostroke.native import _core",
        "import twostroke.native._core as c",
        "def f():\n    from twostroke.native._core import step",
    ):
        assert "twostroke.native._core" in set(imported_modules(ast.parse(source)))


@pytest.mark.parametrize(
    ("raised", "is_seen"),
    [
        ("A(f'{p}: {error}')", 1),
        ("A(str(error))", 1),
        ("A(in_words(error))", 0),
        ("A(f'{error.strerror}') from error", 0),
    ],
)
def test_errors_as_they_print_are_seen(raised: str, is_seen: int) -> None:
    source = f"try:\n    f()\nexcept (OSError, ValueError) as error:\n    raise {raised}"
    assert len(list(errors_as_they_print(ast.parse(source)))) == is_seen
    assert not list(errors_as_they_print(ast.parse(source.replace("OSError", "KeyError"))))
