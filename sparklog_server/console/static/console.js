// Keys, charts, live tail, copied addresses. The pages work without it, except charts and the live tail.
"use strict";
(() => {
  const ROWS_MAX = 500, CHART_EVERY_MS = 4500;
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // -- keys: `/` searches, `g` and a letter go to a page
  let goes = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "/") {
      const field = document.querySelector("main input[type=search]");
      if (field) { event.preventDefault(); field.focus(); field.select(); }
    } else if (event.key === "?") {
      document.getElementById("keys").showModal();
    } else if (event.key === "p") {
      document.getElementById("pause")?.click();
    } else if (event.key === "g" && Date.now() - goes > 1500) {
      goes = Date.now();
    } else if (Date.now() - goes <= 1500) {
      goes = 0;
      for (const link of document.querySelectorAll("nav a[data-key]")) {
        if (link.dataset.key === event.key) link.click();
      }
    }
  });

  // -- a button that waits for a name
  for (const field of document.querySelectorAll("[data-must-be]")) {
    const button = field.form.querySelector("button");
    const check = () => { button.disabled = field.value !== field.dataset.mustBe; };
    field.addEventListener("input", check);
    check();
  }

  // -- addresses of records
  const withCopy = (root) => {
    if (!navigator.clipboard) return;
    for (const link of root.querySelectorAll("a.address")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "copy";
      button.setAttribute("aria-label", `Copy the address of record ${link.textContent.trim()}`);
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(link.href);
        button.textContent = "copied";
        setTimeout(() => { button.textContent = "copy"; }, 1500);
      });
      link.after(button);
    }
  };
  withCopy(document);

  // -- charts
  const COLOURS = ["#ea580c", "#2563eb", "#16a34a", "#9333ea", "#0891b2", "#ca8a04", "#db2777", "#64748b", "#65a30d", "#dc2626", "#7c3aed"];
  const short = (value) => {
    if (value == null) return "–";
    for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (Math.abs(value) >= size) return `${+(value / size).toPrecision(3)} ${unit}`;
    }
    return `${+value.toPrecision(3)}`;
  };
  // As all times of the console: in UTC, as ISO 8601 writes them.
  const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ");
  const isOfBytes = (label) => label === "bytes/s", fromZero = (_, low, high) => [0, Math.max(1, high * 1.1)];
  const chart = (place) => {
    let plot = null, names = "";
    const waiting = document.createElement("p");
    waiting.className = "waiting";
    waiting.textContent = "waiting for the first samples";
    place.append(waiting);
    const draw = (sampled) => {
      const series = Object.entries(sampled.series), data = [sampled.times, ...series.map(([, values]) => values)];
      waiting.hidden = sampled.times.length > 1;
      if (sampled.times.length < 2) return;
      const now = series.map(([name]) => name).join("\n");
      if (plot && now === names) { plot.setData(data); return; }
      plot?.destroy();
      names = now;
      const axis = { stroke: css("--quiet"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1 } };
      plot = new uPlot({
        width: place.clientWidth, height: 170,
        cursor: { drag: { x: false, y: false } },
        legend: { live: true, show: true },
        scales: { y: { range: fromZero }, bytes: { range: fromZero } },
        axes: [{ ...axis, values: (_, ticks) => ticks.map((at) => clock(at).slice(11)) }, { ...axis, values: (_, ticks) => ticks.map(short), size: 60 },
          ...(series.some(([label]) => isOfBytes(label)) ? [{ ...axis, scale: "bytes", side: 1, grid: { show: false }, values: (_, ticks) => ticks.map((one) => `${short(one)}B`), size: 64 }] : [])],
        series: [{ label: "Time (UTC)", value: (_, at) => (at == null ? "–" : clock(at)) }, ...series.map(([label], index) => ({
          label, scale: isOfBytes(label) ? "bytes" : "y", stroke: COLOURS[index % COLOURS.length], width: 2, value: (_, value) => short(value),
          fill: series.length === 1 ? `${COLOURS[0]}22` : undefined, spanGaps: false, points: { show: sampled.times.length < 3 },
        }))],
      }, data, place);
    };
    const ask = async () => {
      if (!place.isConnected) { clearInterval(timer); return; }
      if (document.hidden) return;
      try {
        const response = await fetch(place.dataset.chart, { headers: { Accept: "application/json" } });
        if (response.ok) draw(await response.json());
        else waiting.textContent = "no samples now";
      } catch { waiting.textContent = "the console does not answer"; }
    };
    const timer = setInterval(ask, CHART_EVERY_MS);
    new ResizeObserver(() => plot?.setSize({ width: place.clientWidth, height: 170 })).observe(place);
    ask();
  };
  for (const place of document.querySelectorAll("[data-chart]")) chart(place);

  // -- live tail
  const tail = document.getElementById("tail");
  if (tail) {
    const rows = document.getElementById("rows"), counts = document.getElementById("counts"), pause = document.getElementById("pause");
    let source = null, at = "", before = { seen: 0, shown: 0, skipped: 0 }, now = { seen: 0, shown: 0, skipped: 0 };
    const say = (state) => {
      const sum = (name) => (before[name] + now[name]).toLocaleString("en").replaceAll(",", "\u202f");
      counts.textContent = `${state} · ${sum("seen")} records seen, ${sum("shown")} shown` + (before.skipped + now.skipped ? `, ${sum("skipped")} left out by the limit` : "");
    };
    const begin = () => {
      const url = new URL(tail.dataset.tail, location.href);
      if (at) url.searchParams.set("at", at);
      source = new EventSource(url);
      say("waiting for records");
      source.addEventListener("rows", (event) => {
        const part = document.createElement("template");
        part.innerHTML = event.data;
        for (const row of part.content.querySelectorAll("tr")) row.classList.add("fresh");
        withCopy(part.content);
        rows.prepend(part.content);
        while (rows.children.length > ROWS_MAX) rows.lastElementChild.remove();
      });
      source.addEventListener("counts", (event) => {
        now = JSON.parse(event.data);
        at = now.at;
        say("live");
      });
      source.addEventListener("gone", (event) => { end(); counts.textContent = event.data; pause.textContent = "Resume"; });
      source.onerror = () => {
        keep();
        if (source?.readyState === EventSource.CLOSED) { end(); counts.textContent = "the tail has ended; reload the page"; pause.textContent = "Resume"; } else say("the connection is lost, trying again");
      };
    };
    const keep = () => { for (const name of ["seen", "shown", "skipped"]) { before[name] += now[name]; now[name] = 0; } };
    const end = () => { source?.close(); source = null; keep(); };
    pause.hidden = false;
    pause.addEventListener("click", () => {
      if (source) { end(); say("paused"); pause.textContent = "Resume"; } else { begin(); pause.textContent = "Pause"; }
    });
    begin();
    addEventListener("pagehide", end);
  }
})();
