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
# Pages of the site, and the files of the repository that they are.
OUTSIDE = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "LICENSE": "LICENSE",
}
NOTEBOOKS = sorted(path.stem for path in ROOT.glob("labs/*.ipynb"))
LABS = {"labs/index.md": "labs/README.md"}
LABS |= {f"labs/{name}.md": f"labs/{name}.ipynb" for name in NOTEBOOKS}
PAGES = OUTSIDE | LABS
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)([^)#\s]+)")


def on_config(config: MkDocsConfig) -> None:
    """The menu: under "Labs" each notebook, under "Explanation" each page that it does not name."""
    named = re.findall(r"[\w/-]+\.md", repr(config.nav))
    others = [path.name for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in named]
    for entry in config.nav:
        if "Labs" in entry:
            entry["Labs"] = list(LABS)
        if "Explanation" in entry:
            entry["Explanation"] += others


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The README is the first page; the labs are pages with their pictures."""
    for page, path in PAGES.items():
        text, pictures = (ROOT / path).read_text(encoding="utf-8"), {}
        if path.endswith(".ipynb"):
            text, pictures = notebook.read(ROOT / path)
        files.append(File.generated(config, page, content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"labs/{name}", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links are written as they work in the repository; here a file may have another place."""
    here = page.file.src_uri
    if here.startswith("reference/"):
        return markdown
    placed = {path: name for name, path in PAGES.items()}
    home = posixpath.dirname(PAGES.get(here, f"docs/{here}"))

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(home, link[1]))
        place = placed.get(target, target.removeprefix("docs/"))
        if target.startswith("regard/"):  # a file of the package: what it has to offer
            place = f"reference/python/{Path(target).relative_to('regard').with_suffix('.md')}"
        return posixpath.relpath(place, posixpath.dirname(here))

    return LINK.sub(moved, markdown)
