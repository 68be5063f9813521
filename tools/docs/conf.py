"""Sphinx's settings for the site. The sources are staged by docsite.build; nothing is fetched from anywhere."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

project = "softknee"
copyright = "the softknee authors"
extensions = ["myst_parser", "docsite.mathml"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_inline", "attrs_block", "deflist"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 4
myst_dmath_double_inline = True
# A fence of a language that no highlighter knows stays plain text.
highlight_language = "none"

html_theme = "furo"
html_title = "softknee"
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
html_js_files = [("knob.js", {"defer": "defer"})]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_last_updated_fmt = None
html_favicon = str(HERE / "static" / "mark.svg")
html_logo = str(HERE / "static" / "mark.svg")
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {
        "color-brand-primary": "#1f5fa8",
        "color-brand-content": "#1f5fa8",
        "color-brand-visited": "#5b3f8f",
        "font-stack": "system-ui, -apple-system, 'Segoe UI', Roboto, Inter, 'Helvetica Neue', sans-serif",
        "font-stack--monospace": "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7db4f0",
        "color-brand-content": "#7db4f0",
        "color-brand-visited": "#b9a3e3",
    },
}
python_display_short_literal_types = True
python_maximum_signature_line_length = 88
toc_object_entries = False
