"""The model catalogue, `models.toml`: well-known models by name, as the facts of their config.json.

Owns the file's form and how a model is looked up; what the facts mean is `models.hf_config`'s. No weights, no network.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twostroke.errors import ModelNotFoundError
from twostroke.models.config import ModelConfig
from twostroke.models.hf_config import config_from_hf
from twostroke.roofline.nearest import folded, suggestion

_PATH = Path(__file__).with_name("models.toml")
_OF_THE_WEIGHTS = "metadata of the same repository's weights"
# Endings that tell a tuning or a packing of the same shapes.
_ENDINGS = re.compile(
    r"[-_.: ](instruct|it|chat|hf|base|pt|gguf|thinking|bf16|f16|fp16|fp8|mxfp4|awq|gptq|int4|int8|qat|ud|\d{4}"
    r"|i?q\d\w*)$"
)


@dataclass(frozen=True, slots=True)
class CatalogueModel:
    """A model's published facts.

    facts              what config.json says that decides shapes, spelled as there
    parameters         published number of parameters, as precise as it was published
    active_parameters  of a mixture of experts, published number that a token uses; None for dense models
    source             address of the config.json, or the report that states the facts
    parameters_source  where the counts are published
    """

    name: str
    aliases: tuple[str, ...]
    facts: Mapping[str, Any]
    parameters: float
    active_parameters: float | None
    source: str
    parameters_source: str

    def config(self) -> ModelConfig:
        """The facts as a configuration. Raises UnsupportedModelError for a model type that no family builds."""
        return config_from_hf(self.facts)


def load_models(path: Path = _PATH) -> dict[str, CatalogueModel]:
    """All models by name, in the file's order."""
    import tomllib  # only needed once the catalogue is

    table = tomllib.loads(path.read_text("utf-8"))
    rows: dict[str, dict[str, Any]] = {}
    for name, row in table.items():
        rows[name] = _completed(row, rows[row["like"]]) if "like" in row else row
    return {name: _model(name, **row) for name, row in rows.items()}


def find_model(name: str, models: Mapping[str, CatalogueModel] | None = None) -> CatalogueModel:
    """The model that a name, an alias or a hub name means, however spelt; endings such as "-Instruct" may be there.

    Raises ModelNotFoundError with the nearest names.
    """
    models = load_models() if models is None else models
    by_form = {folded(each): model for model in models.values() for each in (model.name, *model.aliases)}
    text = name.strip().rpartition("/")[2].lower()
    while text:
        if found := by_form.get(folded(text)):
            return found
        shorter = _ENDINGS.sub("", text)
        if shorter == text:
            break
        text = shorter
    known = [each for model in models.values() for each in (model.name, *model.aliases)]
    raise ModelNotFoundError(f"no model {name[:80]!r} in the catalogue{suggestion(text or name, known)}")


def _completed(row: Mapping[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
    """An entry that says only how it differs from another; null facts of TOML do not exist, so none can be dropped."""
    kept = {key: value for key, value in like.items() if key != "aliases"}
    own = {key: value for key, value in row.items() if key not in ("like", "config")}
    return {**kept, **own, "config": {**like["config"], **row.get("config", {})}}


def _model(
    name: str,
    *,
    config: Mapping[str, Any],
    parameters: float,
    source: str,
    parameters_source: str = _OF_THE_WEIGHTS,
    aliases: list[str] | None = None,
    active_parameters: float | None = None,
) -> CatalogueModel:
    return CatalogueModel(name, tuple(aliases or ()), config, parameters, active_parameters, source, parameters_source)
