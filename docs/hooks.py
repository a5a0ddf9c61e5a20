"""Hooks of the documentation site: pages made from files outside of docs/, and links that lead to them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

from docs import notebook
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "notsodeep"

# files of the repository that are pages as they stand
DOCUMENTS = {
    "BENCHMARKS.md": "benchmarks.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
# modules whose public names are listed
MODULES = {
    "api/notsodeep.md": "__init__.py",
    "api/kernels.md": "kernels/__init__.py",
    "api/nn.md": "nn/__init__.py",
    "api/learn.md": "learn/__init__.py",
    "api/gp.md": "gp/__init__.py",
    "api/solvers.md": "solvers/__init__.py",
    "api/scale.md": "scale/__init__.py",
    "api/data.md": "data/__init__.py",
    "api/page.md": "report/page.py",
}
TABLE = "<!-- the table of the README -->"


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made here."""
    pages = {target: (ROOT / name).read_text(encoding="utf-8") for name, target in DOCUMENTS.items()}
    pages |= {page: api_page(path) for page, path in MODULES.items()}
    pages["commands.md"] = commands_page()
    for path in sorted(notebook.FOLDER.glob("*.ipynb")):
        pages[f"notebooks/{path.stem}.md"], pictures = notebook.page(path)
        for name, picture in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
    for address, content in pages.items():
        files.append(File.generated(config, address, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links between files of the repository into links between pages; fill in the table of the README."""
    if TABLE in markdown:
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        found = re.search(r"<!-- written by `make readme` -->\n(.*?)<!-- end -->", readme, flags=re.DOTALL)
        markdown = markdown.replace(TABLE, found[1] if found else "")
    for name, target in DOCUMENTS.items():
        markdown = re.sub(rf"\]\((?:\.\./)?{re.escape(name)}", f"]({target}", markdown)
    if page.file.src_uri in DOCUMENTS.values():
        markdown = re.sub(r"\]\(docs/", "](", markdown).replace("](README.md", "](index.md")
    return markdown


def on_page_content(html: str, **_: Any) -> str:
    """Make every picture a link to itself: a tap shows it in full, which a phone needs."""
    return re.sub(r'<img [^>]*?src="(?!data:)([^"]+)"[^>]*>', r'<a class="picture" href="\1">\g<0></a>', html)


def api_page(path: str) -> str:
    """Every public name of a module, documented from its docstring."""
    tree = ast.parse((SOURCES / path).read_text(encoding="utf-8"))
    parts = ["notsodeep", *Path(path).with_suffix("").parts]
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    names: list[str] = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    )
    lines = [f"# {module}", "", ast.get_docstring(tree) or "", ""]
    for name in names:
        lines += [f"::: {module}.{name}", ""]
        if uses := [f"[{title}](../{page})" for page, (title, code) in examples().items() if _uses(code, name)]:
            lines += [f"*Examples with* `{name}`: {', '.join(uses)}", ""]
    return "\n".join(lines)


@cache
def examples() -> dict[str, tuple[str, str]]:
    """Title and Python code of every guide and notebook that has some."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))}
    texts |= {f"notebooks/{path.stem}.md": notebook.page(path)[0] for path in sorted(notebook.FOLDER.glob("*.ipynb"))}
    found = {}
    for page, text in texts.items():
        code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE))
        if code:
            found[page] = (text.partition("\n")[0].removeprefix("# "), code)
    return found


def _uses(code: str, name: str) -> bool:
    """Whether the code calls or constructs `name`, not only mentions the word in a string or comment."""
    return re.search(rf"(?<![\w\"'=]){re.escape(name)}\(", re.sub(r"#.*", "", code)) is not None


def commands_page() -> str:
    """All commands with their options, from the program itself."""
    import typer

    from notsodeep.cli import app

    lines = [
        "# Command line",
        "",
        "Every command takes `--json` for machines, shows progress on a terminal, and ends with one line and a code "
        "other than 0 on bad input. This page is made from the program itself.",
    ]
    lines += _commands(typer.main.get_command(app), "notsodeep")
    return "\n".join(lines) + "\n"


def _commands(group: Any, prefix: str) -> list[str]:
    lines = []
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            lines += _commands(command, f"{prefix} {name}")
            continue
        lines += ["", f"## {prefix} {name}", "", (command.help or "").strip(), ""]
        lines += ["| option | default | meaning |", "|:--|:--|:--|"]
        for option in command.params:
            if getattr(option, "hidden", False):
                continue
            names = ", ".join(f"`{text}`" for text in (*option.opts, *option.secondary_opts))
            if option.param_type_name == "argument":
                names = f"`{(option.metavar or option.name or '').upper()}`"
            default = "" if option.default in (None, False, ()) or callable(option.default) else f"`{option.default}`"
            meaning = (getattr(option, "help", None) or "").replace("|", "\\|")
            lines.append(f"| {names} | {default} | {meaning} |")
    return lines
