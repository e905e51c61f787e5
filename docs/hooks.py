"""Lets pages show the pictures of `results/`, which lies beside `docs/`.

Pages refer to them by their place in the repository, so that they are seen
there too and no copy grows old. Links of notebooks lead to pages too.
"""

import re
from pathlib import Path

from mkdocs.structure.files import File

_RESULTS = re.compile(r"\((?:\.\./)+(results/[^)\s]+\.png)\)")
_SOURCE = re.compile(r'href="((?!https?:)[^"#]+)\.(?:md|ipynb)(#[^"]*)?"')


def on_files(files, config):
    """Adds the pictures that pages show to the site."""
    root = Path(config.docs_dir).parent
    shown = {
        name
        for page in files.documentation_pages()
        for name in _RESULTS.findall(page.content_string)
    }
    for name in sorted(shown):
        files.append(File.generated(config, name, abs_src_path=root / name))
    return files


def on_page_markdown(markdown, page, **_):
    """Points to them from where the page is in the site."""
    up = "../" * page.file.src_uri.count("/")
    return _RESULTS.sub(rf"({up}\1)", markdown)


def on_page_content(html, page, **_):
    """Leads links of notebooks to pages, as MkDocs does those of pages."""
    if page.file.src_uri.endswith(".ipynb"):
        return _SOURCE.sub(r'href="\1.html\2"', html)
    return html
