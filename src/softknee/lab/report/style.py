"""The style of the page: light, dark and print, wide and narrow; nothing fetched from anywhere."""

_LIGHT = """
    --paper: #fcfcfb; --card: #f5f4f1; --ink: #161615; --soft: #5d5c57; --hair: #e4e3de; --strong: #b9b8b1;
    --link: #1c5fae; --good: #1b7a52; --bad: #b03a2e;
"""
_DARK = """
    --paper: #181817; --card: #21211f; --ink: #f4f3ef; --soft: #b3b2aa; --hair: #31312e; --strong: #5b5a55;
    --link: #7db4f5; --good: #5fc79a; --bad: #f08a7c;
"""

STYLE = f"""
:root {{ color-scheme: light dark; {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
:root.printing {{ color-scheme: light; {_LIGHT} }}
@media print {{ :root {{ color-scheme: light; {_LIGHT} }} }}
* {{ box-sizing: border-box; }}
html {{ scroll-padding-top: 12px; }}
body {{ margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }}
main {{ max-width: 1040px; margin: 0 auto; padding: 40px 24px 64px; }}
h1 {{ font-size: 30px; line-height: 1.2; margin: 0 0 10px; letter-spacing: -0.01em; overflow-wrap: anywhere; }}
h2 {{ font-size: 20px; margin: 52px 0 10px; }}
p, ul {{ margin: 0 0 12px; max-width: 72ch; }}
a {{ color: var(--link); text-decoration-thickness: 1px; text-underline-offset: 2px; }}
:focus-visible {{ outline: 2px solid var(--link); }}
.skip {{ position: absolute; left: -999px; }} .skip:focus {{ left: 12px; top: 12px; background: var(--paper); }}
.lead {{ font-size: 17px; color: var(--soft); overflow-wrap: anywhere; }}
nav ul {{ display: flex; flex-wrap: wrap; gap: 4px 18px; padding: 0; margin: 14px 0 0; max-width: none; }}
nav li {{ list-style: none; font-size: 14px; }}
.answers {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(220px, 1fr)); gap: 14px; }}
.answers {{ margin: 26px 0 16px; }}
.answers > div {{ background: var(--card); border-radius: 8px; padding: 14px 16px; }}
.answers dt {{ font-size: 13px; color: var(--soft); margin-bottom: 2px; }}
.answers dd {{ margin: 0; font-size: 15px; line-height: 1.45; overflow-wrap: anywhere; }}
.note {{ border-left: 3px solid var(--bad); padding: 2px 0 2px 12px; overflow-wrap: anywhere; }}
.scroll {{ overflow-x: auto; margin: 16px 0 26px; }}
table {{ border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }}
caption {{ caption-side: bottom; text-align: left; color: var(--soft); padding-top: 10px; font-size: 13px; }}
caption span {{ display: block; max-width: min(80ch, calc(100vw - 32px)); position: sticky; left: 0; }}
th, td {{ padding: 7px 16px 7px 0; text-align: left; vertical-align: baseline; border-bottom: 1px solid var(--hair); }}
thead th {{ color: var(--soft); font-weight: 600; border-bottom-color: var(--strong); vertical-align: bottom; }}
tbody th {{ font-weight: 600; max-width: 24em; overflow-wrap: anywhere; }}
tbody th.short {{ white-space: nowrap; }}
tbody th, thead th:first-child {{ position: sticky; left: 0; background: var(--paper); }}
.number {{ text-align: right; }} td.number {{ white-space: nowrap; }}
td:last-child, thead th:last-child {{ padding-right: 0; }}
table a {{ color: inherit; text-decoration: none; }}
table a:hover, table a:focus-visible {{ color: var(--link); text-decoration: underline; }}
tbody th a {{ color: var(--link); }}
td.best {{ font-weight: 700; }}
td.better {{ color: var(--good); }} td.worse {{ color: var(--bad); }} td.other {{ color: var(--soft); }}
tr.baseline > * {{ background: var(--card); }} .tag {{ font-weight: 400; color: var(--soft); font-size: 13px; }}
figure {{ margin: 18px 0 26px; min-width: 0; }}
figcaption {{ margin-top: 6px; font-size: 13px; color: var(--soft); max-width: 80ch; overflow-wrap: anywhere; }}
.plot {{ width: 100%; }}
#vg-tooltip-element {{ visibility: hidden; position: fixed; z-index: 9; padding: 6px 10px; font-size: 13px; }}
#vg-tooltip-element {{ background: var(--card); color: var(--ink); border: 1px solid var(--strong); }}
#vg-tooltip-element.visible {{ visibility: visible; }} #vg-tooltip-element table {{ width: auto; font-size: 13px; }}
#vg-tooltip-element td {{ border: 0; padding: 1px 0; }} #vg-tooltip-element .key {{ color: var(--soft); }}
#vg-tooltip-element .key {{ padding-right: 10px; }}
.legend {{ display: flex; flex-wrap: wrap; gap: 2px 4px; margin: 4px 0 8px; }}
.legend button {{ display: inline-flex; align-items: center; gap: 7px; font: inherit; color: var(--ink); }}
.legend button {{ font-size: 13px; }}
.legend button {{ background: none; border: 0; border-radius: 5px; padding: 3px 8px 3px 4px; cursor: pointer; }}
.legend button {{ text-align: left; overflow-wrap: anywhere; }} .legend svg {{ flex: none; }}
.legend button:hover {{ background: var(--card); }} .legend button[aria-pressed="false"] {{ opacity: 0.45; }}
.pair {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 0 28px; }}
dl.facts {{ display: grid; grid-template-columns: max-content 1fr; gap: 6px 20px; margin: 0 0 20px; font-size: 14px; }}
.facts dt {{ color: var(--soft); }} .facts dd {{ margin: 0; overflow-wrap: anywhere; }}
code, pre {{ font-family: ui-monospace, monospace; font-size: 13px; }}
pre {{ background: var(--card); border-radius: 8px; padding: 14px 16px; margin: 8px 0 20px; overflow-x: auto; }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; }}
summary {{ cursor: pointer; }}
@media (max-width: 600px) {{
  main {{ padding: 24px 16px 48px; }}
  h1 {{ font-size: 25px; }} tbody th {{ min-width: 8.5em; max-width: 45vw; }}
  tbody th.short {{ white-space: normal; }} .better, .worse, .other {{ white-space: nowrap; }}
  dl.facts {{ grid-template-columns: 1fr; gap: 0; }} .facts dd {{ margin-bottom: 10px; }}
}}
@media print {{
  @page {{ margin: 15mm 13mm; }}
  body {{ font-size: 10.5pt; }} main {{ padding: 0; max-width: none; }}
  nav, .skip, .legend button[aria-pressed="false"] {{ display: none !important; }}
  h2 {{ break-after: avoid; margin-top: 26px; }} figure, tr, .answers > div {{ break-inside: avoid; }}
  table, .tag {{ font-size: 8pt; }} th, td {{ padding: 4px 8px 4px 0; }}
  .answers {{ grid-template-columns: repeat(3, 1fr); }} .pair {{ grid-template-columns: 1fr 1fr; }}
  tbody th, thead th:first-child {{ position: static; }} .scroll {{ overflow: visible; }}
  a, tbody th a {{ color: inherit; text-decoration: none; }} .answers > div, pre {{ border: 1px solid var(--hair); }}
}}
"""
