"""Names in published tables, as the catalogues have them. Owns the translation, nothing else."""

import re
from collections.abc import Mapping

from twostroke.errors import HardwareNotFoundError, ModelNotFoundError
from twostroke.roofline.device import Device
from twostroke.roofline.hardware_catalogue import find_hardware
from twostroke.roofline.model_catalogue import CatalogueModel, find_model
from twostroke.roofline.nearest import folded

# What a table calls a device that the catalogue has under another name; the first pattern that matches.
_DEVICES: tuple[tuple[str, str], ...] = (
    (r"GB10|DGX Spark", "DGX Spark"),
    (r"Strix Halo|AI Max\+ 395|Framework (Desktop )?Mainboard", "Strix Halo"),
    (r"M4 Mac mini", "M4 10c"),
    (r"M3 Ultra 512GB", "M3 Ultra 80c"),
    (r"M1 Ultra \(48", "M1 Ultra 48c"),
    (r"M1 Max Mac Studio|M1 Max 64GB", "M1 Max 32c"),
    (r"M1 Pro 32GB", "M1 Pro 16c"),
    (r"M4 Max (36|128)GB", "M4 Max 40c"),
    (r"M3 Max 64GB", "M3 Max 40c"),
    (r"^H100 80GB|H100 SXM", "H100 SXM"),
    (r"^A100 80GB|A100 SXM", "A100 SXM 80GB"),
    (r"A100 PCIe", "A100 PCIe 80GB"),
    (r"^GH200", "GH200"),
    (r"Pi 400", "Raspberry Pi 4"),
    (r"^(Raspberry )?Pi (5|500|CM5)[^(]*$|Raspberry Pi 5", "Raspberry Pi 5"),
)
_BY_HAND: tuple[tuple[str, str], ...] = (
    (r"^(Llama|LLaMA)-7B$|^llama-2-7b", "Llama-2-7B"),
    (r"^LLaMA-13B$", "Llama-2-13B"),
    (r"^Mistral-7B", "mistral-7b"),
    (r"^DeepSeek-R1-Distill-Qwen-14B$|Qwen2.5-Coder-14B", "Qwen2.5-14B"),
    (r"^DeepSeek-R1-671B$", "DeepSeek-R1"),
)


def catalogue_hardware(name: str, note: str, devices: Mapping[str, Device]) -> Device:
    """The catalogue's device for a table's name. Raises HardwareNotFoundError where there is none."""
    for pattern, known in _DEVICES:
        if re.search(pattern, name):
            return find_hardware(known, devices)
    inner = re.search(r"\((?:[^()]*?)((?:Nvidia|AMD|Intel) [^()]*?)\s*(?:\(.*)?\)?(?: \d+GB)?$", name)
    tries = [inner[1]] if inner and "device used: CPU" not in note else []
    for text in (*tries, name, re.sub(r" \d+ ?GB.*$", "", name)):
        try:
            return find_hardware(text.strip(), devices)
        except HardwareNotFoundError:
            continue
    whole = folded(inner[1] if tries and inner else name)
    known_names = {folded(each): device for device in devices.values() for each in (device.name, *device.aliases)}
    inside = [form for form in known_names if len(form) >= 5 and form in whole]
    if inside:
        return known_names[max(inside, key=len)]
    raise HardwareNotFoundError(f"hardware not in the catalogue: {name}")


def catalogue_model(name: str, models: Mapping[str, CatalogueModel]) -> CatalogueModel:
    """The catalogue's model for a table's name. Raises ModelNotFoundError where there is none."""
    text = next((known for pattern, known in _BY_HAND if re.search(pattern, name)), name)
    try:
        return find_model(text, models)
    except ModelNotFoundError:
        raise ModelNotFoundError(f"model not in the catalogue: {name}") from None
