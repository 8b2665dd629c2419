"""JSON with one line per array of numbers: small, and still readable as a diff."""

import json
import pathlib


def render(value, indent: int = 0) -> str:
    pad = " " * (indent + 1)
    if isinstance(value, dict) and value:
        items = [f"{pad}{json.dumps(k)}: {render(v, indent + 1)}" for k, v in value.items()]
        return "{\n" + ",\n".join(items) + "\n" + " " * indent + "}"
    if isinstance(value, list) and any(isinstance(v, (dict, list)) for v in value):
        if all(isinstance(v, dict) and is_flat(v) for v in value):
            items = [pad + compact(v) for v in value]
        else:
            items = [pad + render(v, indent + 1) for v in value]
        return "[\n" + ",\n".join(items) + "\n" + " " * indent + "]"
    return compact(value)


def is_flat(value: dict) -> bool:
    return not any(isinstance(v, dict) for v in value.values()) and len(value) <= 5


def compact(value) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def write_json(path: pathlib.Path, value) -> None:
    path.write_text(render(value) + "\n", encoding="utf-8")
