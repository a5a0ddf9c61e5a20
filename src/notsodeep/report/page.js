(async () => {
  "use strict";
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
  const key = "notsodeep-theme", store = {  // a browser may refuse to keep anything for a file
    get() { try { return localStorage.getItem(key); } catch { return null; } },
    set(value) { try { value ? localStorage.setItem(key, value) : localStorage.removeItem(key); } catch {} },
  };

  // --- theme: the system's, unless the reader chose the other one
  const systemTheme = () => system.matches ? "dark" : "light";
  const current = () => root.dataset.theme || systemTheme();
  const button = document.getElementById("theme");
  const plots = [];
  function apply(choice) {
    if (choice && choice !== systemTheme()) root.dataset.theme = choice; else delete root.dataset.theme;
    const other = current() === "dark" ? "light" : "dark";
    button.textContent = other === "dark" ? "☾ Dark" : "☀ Light";
    button.setAttribute("aria-label", `Switch to ${other} colours`);
    for (const plot of plots) plot.draw();
  }
  button.hidden = false;
  button.addEventListener("click", () => {
    const chosen = current() === "dark" ? "light" : "dark";
    store.set(chosen === systemTheme() ? null : chosen);
    apply(chosen);
  });
  system.addEventListener("change", () => apply(store.get()));
  apply(store.get());

  // --- plots
  const places = [...document.querySelectorAll(".plot")];
  if (!places.length) return;
  function excuse(text) {
    for (const place of places) { place.classList.add("broken"); place.textContent = text; }
  }
  if (typeof DecompressionStream === "undefined") return excuse("This browser is too old for the interactive plot.");
  const holder = document.getElementById("plotly");
  const packed = Uint8Array.from(atob(holder.textContent), c => c.charCodeAt(0));
  const source = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  holder.remove();
  const script = document.createElement("script");
  script.textContent = source;
  document.head.append(script);

  const touch = matchMedia("(pointer: coarse)").matches;
  const axis = {
    gridcolor: "var(--grid)", linecolor: "var(--muted)", zerolinecolor: "var(--line)", tickcolor: "var(--muted)",
    showline: true, zeroline: false, ticks: "outside", ticklen: 4, automargin: true, title: { standoff: 8 },
  };
  const template = { layout: {
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: "var(--ink)" },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 50, r: 12, t: 10, b: 44 },
    xaxis: axis, yaxis: axis, hovermode: "closest", dragmode: touch ? false : "zoom",
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)" },
    hoverlabel: { bgcolor: "var(--panel)", bordercolor: "var(--muted)", font: { color: "var(--ink)" }, align: "left" },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: "var(--muted)", activecolor: "var(--ink)", orientation: "h" },
  } };
  const config = {
    responsive: true, displaylogo: false, showSendToCloud: false, displayModeBar: touch ? true : "hover",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", ...(touch ? ["zoomIn2d", "zoomOut2d"] : [])],
  };

  // colours written as var(--name) become those of the theme; plotly.js does not know CSS variables
  function painted(value, style) {
    if (typeof value === "string") return value.replace(/var\((--[\w-]+)(?:\/([0-9a-f]{2}))?\)/g,
      (_, name, alpha = "") => style.getPropertyValue(name).trim() + alpha);  // #rrggbb, #rrggbbaa
    if (Array.isArray(value)) return value.map(one => painted(one, style));
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, painted(v, style)]));
    return value;
  }
  for (const place of places) {
    const figure = JSON.parse(place.nextElementSibling.textContent);
    Object.assign(figure.layout, { template, uirevision: "kept" });  // a zoom survives a change of theme
    const plot = { draw() {
      const now = painted(figure, getComputedStyle(root));
      return Plotly.react(place, now.data, now.layout, config);
    } };
    plots.push(plot);
    await plot.draw();
  }
  root.dataset.drawn = String(plots.length);
})();
