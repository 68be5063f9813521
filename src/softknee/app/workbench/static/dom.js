// Small helpers: elements, numbers as people read them, copying and saving.

const SVG = "http://www.w3.org/2000/svg";

export function el(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), attributes, children);
}

function furnish(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((one) => one !== null && one !== undefined));
  return node;
}

// Significant digits, a real minus, and powers of ten where there would be many zeros.
export function shown(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : "∞";
  if (value === 0 || Math.abs(value) < 1e-14) return "0";
  const size = Math.abs(value);
  const text = size >= 1e6 || size < 1e-4 ? value.toExponential(digits - 1) : String(Number(value.toPrecision(digits)));
  return text.replace("-", "−").replace(/e\+?(.*)$/, (_, power) => "·10" + raised(power.replace("-", "−")));
}

function raised(text) {
  const signs = { "−": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
  return [...text].map((one) => signs[one] ?? one).join("");
}

// A number for an input field or the address: what is computed with, less the dust of binary fractions.
export function plain(value) {
  return String(Number(value.toPrecision(15)));
}

// A field as wide as its number, so that no digit is cut off.
export function fitNumber(field) {
  field.style.width = `${Math.min(22, Math.max(8, field.value.length + 3))}ch`;
}

export function key(style) {
  return el("span", { class: "key" }, svg("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" },
    svg("path", { d: "M1 5H25", class: `line ${style}` })));
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = el("textarea", { class: "unseen" });
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

export function saveAs(name, content, type) {
  const link = el("a", { href: URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type })), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const GREEK = { alpha: "α", beta: "β", gamma: "γ", delta: "δ", eps: "ε", lam: "λ", sigma: "σ", slope: "a", shift: "s", g_minus: "g₋", g_plus: "g₊", theta: "θ", mu: "μ", tau: "τ", omega: "ω", kappa: "κ" };

export function letter(name) {
  return GREEK[name] ?? name.replaceAll("_", " ");
}
