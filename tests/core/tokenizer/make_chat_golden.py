"""Writes chat_golden.json: what Jinja makes of chat templates in the ChatML family.

    python make_chat_golden.py MODEL.gguf VOCABULARY.gguf TEMPLATE.jinja ...

Needs gguf and jinja2. Settings as in `transformers`' apply_chat_template.
"""

import json
import pathlib
import sys

import gguf
from jinja2.sandbox import ImmutableSandboxedEnvironment

CHATS = [
    [("user", "Hi")],
    [("system", "Answer in French."), ("user", "Hi")],
    [("user", "What is 2+2?"), ("assistant", "4"), ("user", "And 12 * 12?")],
    [("system", ""), ("user", ""), ("assistant", ""), ("user", "")],
    [("user", "  two spaces in front, newline behind\n"), ("assistant", " one \n\n"), ("user", "\n\n  x")],
    [("user", "Grüße 你好 🎬👍🏽"), ("assistant", "é́"), ("user", "\t\u3000tab")],
    [("user", "a"), ("system", "changed my mind"), ("user", "b")],
    [("assistant", "I speak first."), ("user", "fine"), ("user", "twice")],
]


def template_of(path: pathlib.Path) -> str:
    if path.suffix == ".gguf":
        return gguf.GGUFReader(path).fields["tokenizer.chat_template"].contents()
    return path.read_text()


def main() -> None:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    templates = []
    for path in map(pathlib.Path, sys.argv[1:]):
        source = template_of(path)
        template = environment.from_string(source)
        cases = []
        for chat in CHATS:
            messages = [{"role": role, "content": text} for role, text in chat]
            cases.append({
                "messages": messages,
                "open": template.render(messages=messages, add_generation_prompt=True),
                "closed": template.render(messages=messages, add_generation_prompt=False),
            })
        templates.append({"name": path.stem, "template": source, "cases": cases})
    out = pathlib.Path(__file__).with_name("chat_golden.json")
    out.write_text(json.dumps(templates, indent=1, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
