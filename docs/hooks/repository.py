"""What stands outside docs/ and is a page of the site too, and links that work in both places."""

from __future__ import annotations

import os
import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.append(os.fspath(Path(__file__).parent))
import notebook

ROOT = Path(__file__).parents[2]
# Files of the repository by their names on the site.
OUTSIDE = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "LICENSE": "LICENSE",
}
LABS = {f"labs/{path.stem}.md": f"labs/{path.name}" for path in sorted(ROOT.glob("labs/*.ipynb"))}
OPENING = """# Labs

Each notebook in `labs/` builds one idea from tensors, then does the same with the part of that
name, trains a small run, looks inside, and asks three questions whose answers can be checked.
"""
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)#\s]+)")


def on_config(config: MkDocsConfig) -> None:
    """The menu's entry "Labs" gets a line for each notebook."""
    for entry in config.nav:
        if "Labs" in entry:
            entry["Labs"] = ["labs/index.md", *LABS]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The README is the first page; the labs are pages with their pictures."""
    for page, path in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text("utf-8")))
    opening = [OPENING]
    for page, path in LABS.items():
        text, pictures = notebook.read(ROOT / path)
        files.append(File.generated(config, page, content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"labs/{name}", content=content))
        title = text.partition("\n")[0].removeprefix("# ")
        opening.append(f"- [{title}]({posixpath.basename(page)})")
    files.append(File.generated(config, "labs/index.md", content="\n".join([*opening, ""])))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links are written as they work in the repository; here a file may have another place."""
    placed = {path: name for name, path in {**OUTSIDE, **LABS}.items()}
    own = {**OUTSIDE, **LABS}.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    if page.file.src_uri.startswith(("reference/", "labs/index")):
        return markdown

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(own), link[1]))
        name = placed.get(target, target.removeprefix("docs/"))
        return posixpath.relpath(name, posixpath.dirname(page.file.src_uri))

    return LINK.sub(moved, markdown)
