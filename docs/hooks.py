"""Let MkDocs publish the documents that lie outside of ``docs/``, such as README.md and RESULTS.md.

Links between files are written as GitHub resolves them. Here they are turned into links between
the pages of the site, and files that are no pages are copied to it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "README.md",
    "RESULTS.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "examples/*/README.md",
    "benchmarks/results/*/README.md",
)
LINK = re.compile(r'(\]\(|src=")(?!https?:|mailto:|#)([^)"#\s]+)')
ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):(?=<code>|<a )")


def published(path: str) -> str:
    """The place on the site of a file of the repository."""
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def target(source: str, link: str) -> str:
    """The file of the repository that ``link`` in the document ``source`` leads to."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    return f"{path}/README.md" if (ROOT / path / "README.md").is_file() else path


def documents() -> list[str]:
    """All documents, those of ``docs/`` among them, as paths of the repository."""
    paths = (path for glob in (*PAGES, "docs/**/*.md") for path in ROOT.glob(glob))
    return sorted(path.relative_to(ROOT).as_posix() for path in paths)


def links(document: str) -> list[tuple[str, str]]:
    """Each relative link of a document, and the file that it leads to."""
    text = (ROOT / document).read_text("utf-8")
    text = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    return [(link, target(document, link)) for _, link in LINK.findall(text)]


def on_files(files, config):
    """Add the documents outside of ``docs/``, and whatever documents lead to."""
    from mkdocs.structure.files import File

    pages = documents()
    for path in sorted({*pages, *(found for page in pages for _, found in links(page))}):
        if files.get_file_from_path(published(path)) is None and (ROOT / path).is_file():
            files.append(File.generated(config, published(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links as they are on the site."""
    source = Path(page.file.abs_src_path).relative_to(ROOT).as_posix()

    def rewritten(match):
        found = published(target(source, match[2]))
        here = posixpath.dirname(page.file.src_uri)
        return match[1] + posixpath.relpath(found, here or ".")

    return LINK.sub(rewritten, markdown)


def on_page_content(html, page, config, files):
    """Names in docstrings, without the roles of reStructuredText."""
    return ROLE.sub("", html)
