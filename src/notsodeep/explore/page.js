(() => {
  "use strict";
  const root = document.documentElement, at = id => document.getElementById(id);
  const system = matchMedia("(prefers-color-scheme: dark)");
  const knobNames = ["recurrent", "input", "bias", "tau0"], more = ["ratio", "separation", "kinks"];
  let shown = "kernel", last = null, network = null, designs = {}, source = "digits";  // answers come in any order

  // --- asking: one question of a topic at a time, the newest position of the knobs wins
  const asking = {}, waiting = {}, drawn = {};
  async function send(path, options) {
    const reply = await fetch(path, { method: "POST", ...options });
    const content = await reply.json().catch(() => ({ error: "the program has ended; start notsodeep explore again" }));
    if (!reply.ok) throw new Error(content.error || "the question was refused");
    return content;
  }
  async function ask(topic, question, draw) {
    if (asking[topic]) { waiting[topic] = [topic, question, draw]; return; }
    asking[topic] = true;
    const began = performance.now();
    try {
      const answer = await send(`ask/${topic}`, { body: JSON.stringify(question) });
      if (!answer.overtaken) { complain(""); draw(answer); drawn[topic] = () => draw(answer); }
      root.dataset[topic] = String(Number(root.dataset[topic] || 0) + 1);
      at("took").textContent = `The last answer took ${Math.round(performance.now() - began)} ms.`;
    } catch (error) { complain(error instanceof TypeError ? "the program has ended; start notsodeep explore again" : error.message); }
    asking[topic] = false;
    if (waiting[topic]) { const next = waiting[topic]; delete waiting[topic]; ask(...next); }
  }
  function complain(text) { at("error").textContent = text; at("error").hidden = !text; }

  // --- knobs
  function knobs() {
    const formula = at("phi").value === "";
    const found = { phi: formula ? at("formula").value : at("phi").value, kind: at("kind").value };
    for (const name of [...knobNames, ...more]) found[name] = Number(at(name).value);
    return found;
  }
  function turned() {
    at("typed").hidden = at("phi").value !== "";
    for (const name of [...knobNames, ...more]) document.querySelector(`label[for=${name}] output`).textContent = at(name).value;
    if (designs.exact) at("exact").classList.add("stale");
    if (designs.kinks) at("few").classList.add("stale");
    designs = {};
    refresh();
  }
  function refresh() {
    ask("kernel", knobs(), drawKernel);
    if (shown === "kernel") ask("network", knobs(), drawNetwork);
    if (shown === "spectra") { ask("spectra", knobs(), drawSpectra); ask("outlook", knobs(), drawOutlook); ask("distance", knobs(), drawDistance); }
    if (shown === "data") askData();
  }
  const askData = () => {
    const { ratio, separation, kinks, ...rest } = knobs();
    if (!at("facts").textContent) at("facts").textContent = "computing …";
    ask("data", { ...rest, source, normalize: at("normalize").value }, drawData);
  };

  // --- drawing
  const value = name => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const touch = matchMedia("(pointer: coarse)").matches;
  function plot(id, data, layout = {}) {
    const axis = { gridcolor: value("grid"), linecolor: value("muted"), zerolinecolor: value("line"), tickcolor: value("muted"),
      showline: true, ticks: "outside", ticklen: 4, automargin: true };
    const { xaxis, yaxis, ...others } = layout;
    Plotly.react(at(id), data, {
      font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: value("ink") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 48, r: 10, t: 30, b: 40 },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)" },
      dragmode: touch ? false : "zoom", uirevision: "kept", xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis }, ...others,
    }, { responsive: true, displaylogo: false, displayModeBar: false });
  }
  const line = (name, x, y, color, dash = "solid") => ({ name, x, y, mode: "lines", line: { color: value(color), width: 2.2, dash } });
  const digits = number => number === 0 ? "0" : Math.abs(number) < 1e-3 ? number.toExponential(1) : Number(number.toPrecision(6)).toString();
  const percent = share => `${(100 * share).toPrecision(3)} %`;
  function facts(id, entries) {
    at(id).replaceChildren(...entries.map(([number, meaning]) => {
      const box = document.createElement("div"), dt = document.createElement("dt"), dd = document.createElement("dd");
      dt.textContent = meaning; dd.textContent = number; box.append(dt, dd); return box;
    }));
  }
  function drawKernel(answer) {
    last = answer;
    at("posed").textContent = answer.well_posed.reason;
    at("posed").classList.toggle("bad", !answer.well_posed.verdict);
    if (answer.obstacle) { complain(answer.obstacle); network = null; return; }
    drawCurves();
  }
  function drawCurves() {
    if (!last || !last.k) return;
    const found = network, t = last.k.t, curves = [line("DEQ", t, last.k.deq, "implicit")];
    if (found) curves.push(line("DEQ, centred", t, found.curves.deq, "other"), line("explicit", t, found.curves.explicit, "explicit", "dash"));
    plot("plot-k", curves, { xaxis: { title: { text: "cosine t" } }, yaxis: { title: { text: "k(t)" } } });
    drawActivations();
  }
  function indexed(name) {  // c1 with its digit lowered
    const [, letter, digit] = /^(\D+)(\d*)$/.exec(name), sub = document.createElement("sub");
    sub.textContent = digit;
    return digit ? [letter, sub] : [letter];
  }
  function drawNetwork(answer) {
    const found = answer.refused ? null : answer;
    network = found;
    drawCurves();
    at("match").textContent = found
      ? `${found.depth} hidden layer${found.depth > 1 ? "s" : ""}: ${found.exact ? "exact in all four numbers" : "not exact, misses " + found.missed.join(", ")}.`
      : `None: ${answer.refused}`;
    at("layers").replaceChildren(...(found ? found.layers : []).map((one, k) => {
      const div = document.createElement("div");
      div.append(...indexed(`σ${k + 1}`), `(x) = ${one.formula}`);
      return div;
    }));
    at("numbers").replaceChildren(...Object.entries(found ? found.numbers : {}).map(([name, row]) => {
      const tr = document.createElement("tr"), th = document.createElement("th");
      th.append(...indexed(name)); tr.append(th);
      for (const text of [digits(row.deq), digits(row.explicit), row.error.toExponential(1)]) {
        const td = document.createElement("td"); td.textContent = text; tr.append(td);
      }
      return tr;
    }));
  }
  function drawActivations() {
    if (!last || !last.phi) return;
    const x = last.phi.x, lines = [line("φ", x, last.phi.y, "implicit")];
    (network ? network.layers : []).forEach((one, k) => lines.push(line(`layer ${k + 1}`, x, one.y, "explicit", k ? "dot" : "dash")));
    if (designs.exact) lines.push(line("one layer", x, designs.exact.y, "theory"));
    if (designs.kinks) lines.push(line("few kinks", x, designs.kinks.y, "other2", "dashdot"));
    plot("plot-phi", lines, { xaxis: { title: { text: "x" } }, yaxis: { range: [-3.2, 3.2] } });
  }
  function drawDesign(topic, id, what) {
    return answer => {
      designs[topic] = answer;
      at(id).classList.remove("stale");
      at(id).textContent = `${what}: sup |k̂ − k|/k(1) = ${answer.distance.toExponential(1)}${answer.exact ? ", exact" : ""}. σ(x) = ${answer.formula}`;
      drawActivations();
    };
  }
  function drawSpectra(answer) {
    const curve = line("limit", answer.density.x, answer.density.y, "theory");
    const bars = { name: `${answer.n} eigenvalues, sampled`, x: answer.eigenvalues, type: "histogram", histnorm: "probability density",
      nbinsx: 90, marker: { color: value("implicit"), opacity: .45 } };
    const marks = { name: "predicted outliers", x: answer.outliers, y: answer.outliers.map(() => 0), mode: "markers",
      marker: { symbol: "triangle-up", size: 13, color: value("explicit") } };
    const highest = Math.max(...answer.density.y);
    plot("plot-spectrum", [bars, curve, marks], { xaxis: { title: { text: "eigenvalue" } }, yaxis: { title: { text: "density" }, range: [0, 1.6 * highest] } });
    at("outliers").textContent = `n = ${answer.n}, p = ${answer.p}; outliers predicted ${answer.outliers.map(digits).join(", ") || "none"}, largest of the sample ${answer.eigenvalues.slice(-Math.max(1, answer.outliers.length)).map(digits).join(", ")}`
      + (answer.atoms.length ? `; ${percent(answer.atoms[0][1])} of the eigenvalues are ${digits(answer.atoms[0][0])}` : "");
    at("caveats").textContent = answer.caveats.join(" ");
  }
  function drawOutlook(answer) {
    facts("forecast", [[percent(answer.accuracy), "forecast accuracy of two classes, best ridge"]]);
  }
  function drawDistance(answer) {
    facts("distances", "predicted" in answer ? [[percent(answer.predicted), "predicted distance of both kernels, rows of equal norm"], [percent(answer.measured), "measured on such rows"]] : []);
  }
  function drawData(answer) {
    at("facts").textContent = `${answer.name}: ${answer.samples} samples × ${answer.features} features, ${answer.used} used. Rows: ${answer.rows}. ${answer.notes.join(". ")} ${answer.refused}`;
    const entries = [];
    if (answer.distance !== null) entries.push([percent(answer.distance), "distance of both kernels on these rows"]);
    if ("implicit" in answer.accuracy) entries.push([percent(answer.accuracy.implicit), "accuracy with the DEQ's kernel, leave-one-out"]);
    if ("explicit" in answer.accuracy) entries.push([percent(answer.accuracy.explicit), "with the explicit network's"]);
    facts("scores", entries);
    plot("plot-heat", [{ type: "heatmap", z: answer.heat, colorscale: [[0, value("cold")], [.5, value("middle")], [1, value("warm")]], colorbar: { thickness: 14, tickfont: { color: value("ink") } },
      hovertemplate: "%{z:.4g}<extra></extra>" }], { yaxis: { autorange: "reversed", scaleanchor: "x", showgrid: false, showline: false, ticks: "", showticklabels: false }, xaxis: { constrain: "domain", showgrid: false, showline: false, ticks: "", showticklabels: false } });
  }

  // --- tabs, buttons, theme
  const tabs = [...document.querySelectorAll("[role=tab]")];
  function open(tab) {
    shown = tab.getAttribute("aria-controls");
    for (const one of tabs) { one.setAttribute("aria-selected", String(one === tab)); one.tabIndex = one === tab ? 0 : -1; at(one.getAttribute("aria-controls")).hidden = one !== tab; }
    refresh();
  }
  tabs.forEach((tab, k) => {
    tab.addEventListener("click", () => open(tab));
    tab.addEventListener("keydown", event => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) { const next = tabs[(k + step + tabs.length) % tabs.length]; next.focus(); open(next); }
    });
  });
  at("knobs").addEventListener("submit", event => event.preventDefault());
  for (const id of ["phi", "kind", "formula", ...knobNames, "ratio", "separation"]) at(id).addEventListener("input", turned);
  at("kinks").addEventListener("input", turned);
  at("design").addEventListener("click", () => {
    for (const id of ["exact", "few"]) { at(id).classList.remove("stale"); at(id).textContent = "designing …"; }
    ask("exact", knobs(), drawDesign("exact", "exact", "Exact"));
    ask("kinks", knobs(), drawDesign("kinks", "few", `At most ${at("kinks").value} kinks`));
  });
  at("normalize").addEventListener("input", askData);
  at("source").addEventListener("input", () => { source = at("source").value; askData(); });
  async function chosen() {
    const file = at("file").files[0];
    if (!file) return;
    const query = new URLSearchParams({ name: file.name, label: at("label").value.trim() });
    for (const one of at("ignore").value.split(",")) query.append("ignore", one.trim());
    try { source = (await send(`upload?${query}`, { body: file })).source; complain(""); askData(); } catch (error) { complain(error.message); }
  }
  for (const id of ["file", "label", "ignore"]) at(id).addEventListener("change", chosen);
  async function tellFor(button, text) {
    const before = button.textContent; button.textContent = text; setTimeout(() => { button.textContent = before; }, 1500);
  }
  at("copy").addEventListener("click", async () => {
    if (!last) return;
    try { await navigator.clipboard.writeText(last.python); tellFor(at("copy"), "Copied"); }
    catch { const area = document.createElement("textarea"); area.value = last.python; document.body.append(area); area.select(); document.execCommand("copy"); area.remove(); tellFor(at("copy"), "Copied"); }
  });
  at("save").addEventListener("click", () => {
    if (!last) return;
    const content = { knobs: knobs(), model: last.json, match: network, one_layer: designs };
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(content, null, 2) + "\n"], { type: "application/json" }));
    link.download = "notsodeep.json"; link.click(); URL.revokeObjectURL(link.href); tellFor(at("save"), "Saved");
  });
  const dark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  function theme() { at("theme").textContent = dark() ? "☀ Light" : "☾ Dark"; for (const redraw of Object.values(drawn)) redraw(); }
  at("theme").addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; theme(); });
  system.addEventListener("change", theme);
  at("theme").textContent = dark() ? "☀ Light" : "☾ Dark";
  at("phi").value = "relu"; at("kind").value = "ck";
  turned();
})();
