"""The style of the pages: two colour schemes, tabular figures, nothing fetched from anywhere."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fcfcfb; --ink: #161615; --soft: #5d5c57; --hair: #e4e3de; --strong: #b9b8b1;
  --one: #2a78d6; --two: #d9541e; --before: #8a8983;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #181817; --ink: #f4f3ef; --soft: #b3b2aa; --hair: #31312e; --strong: #5b5a55;
    --one: #5a9df0; --two: #f0804f; --before: #97968f;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 920px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { font-size: 30px; line-height: 1.2; margin: 0 0 12px; letter-spacing: -0.01em; }
h2 { font-size: 19px; margin: 44px 0 10px; }
p { margin: 0 0 12px; max-width: 68ch; }
.lead { font-size: 17px; color: var(--soft); }
.quiet { color: var(--soft); font-weight: normal; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: var(--soft); font-variant-numeric: tabular-nums; }
svg .axis { font-size: 12px; }
svg .name { font-size: 13px; fill: var(--ink); }
.middle { text-anchor: middle; } .end { text-anchor: end; }
.grid { stroke: var(--hair); } .zero { stroke: var(--strong); }
.curve { fill: none; stroke-linejoin: round; stroke-linecap: round; }
.before { stroke: var(--before); stroke-width: 1.6; stroke-dasharray: 4 3; }
.layer1 { stroke: var(--one); stroke-width: 1.8; }
.layer2 { stroke: var(--two); stroke-width: 1.8; }
.seed { fill: var(--paper); stroke: var(--one); stroke-width: 2; }
.mean { stroke: var(--ink); stroke-width: 2.5; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 22px; font-size: 14px; color: var(--soft); }
.legend > span { display: inline-flex; align-items: center; gap: 7px; }
.key { width: 28px; height: 10px; }
.ring { width: 11px; height: 11px; border: 2px solid var(--one); border-radius: 50%; }
.bar { width: 3px; height: 16px; background: var(--ink); }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(250px, 1fr)); gap: 20px 24px; }
figure { margin: 0; max-width: 340px; }
figcaption { padding-left: 34px; font-size: 15px; }
.scroll { overflow-x: auto; margin-top: 20px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
caption { caption-side: bottom; text-align: left; color: var(--soft); padding-top: 10px; font-size: 13px; }
th, td { padding: 8px 14px 8px 0; text-align: left; vertical-align: top; }
th, td { border-bottom: 1px solid var(--hair); }
thead th { color: var(--soft); font-weight: 600; border-bottom-color: var(--strong); vertical-align: bottom; }
thead th:nth-child(-n+4):not(:first-child), thead th:last-child { text-align: right; }
td.number { text-align: right; white-space: nowrap; }
td:last-child, th:last-child { padding-right: 0; }
td:nth-child(5) { white-space: nowrap; }
td:nth-child(5), thead th:nth-child(5) { padding-left: 14px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 6px 20px; margin: 0; font-size: 14px; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
code { font-family: ui-monospace, monospace; font-size: 13px; }
@media (max-width: 560px) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: 10px; } }
"""
