"""What pyproject.toml cannot say: the long description is README.md with absolute links.

On the page of a package index there is no repository around the text, so that relative links and pictures lead nowhere.
They are completed from the repository that [project.urls] names; no other place holds that address.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent
# [text](target), ![picture](target), and what the HTML of the README uses; full addresses and #places are left alone.
LINK = re.compile(r"""(!\[[^\[\]]*\]\(|\]\(|\b(?:href|src|srcset)=")(?!\w+:|#)([^)"\s]+)""")


def absolute(text: str, repository: str) -> str:
    """The text with every relative target completed: files as the repository shows them, pictures as they are."""

    def complete(link: re.Match[str]) -> str:
        before, target = link.groups()
        shown = "raw" if before.startswith(("!", "src")) else "blob"
        return f"{before}{repository}/{shown}/main/{target}"

    return LINK.sub(complete, text)


project = tomllib.loads((HERE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
readme = (HERE / "README.md").read_text(encoding="utf-8")
setup(
    long_description=absolute(readme, project["urls"]["Repository"]),
    long_description_content_type="text/markdown",
)
