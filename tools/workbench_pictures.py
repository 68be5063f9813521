"""The pictures of the workbench in docs/images, light and dark, from the present code: a browser opens the real page.

    python tools/workbench_pictures.py

Needs Chromium, Playwright and Pillow, as the tests do.
"""

import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parent.parent
FUNCTIONS = ("srelu~delta=1", "gelu", "mollify(hardtanh, triweight, width=delta)~delta=0.4")
SECONDS = 120


def main() -> None:
    sys.path[:0] = [str(ROOT / "tests/helpers"), str(ROOT / "src")]
    from workbench_page import Page, chromium, running

    with running(Path(tempfile.mkdtemp())) as address, chromium() as browser:
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme=scheme)
            page = Page(context, address).open(*FUNCTIONS, pick="0")
            for fact in ("#certificate td", "#formula math", "#depth svg"):
                page.tab.locator(fact).first.wait_for(timeout=1000 * SECONDS)
            page.until(lambda page=page: page.tab.locator("#take-copy").is_enabled(), "the code")
            content = page.tab.screenshot()
            path = ROOT / f"docs/images/workbench-{scheme}.png"
            Image.open(BytesIO(content)).convert("RGB").quantize(128).save(path, optimize=True)
            context.close()


if __name__ == "__main__":
    main()
