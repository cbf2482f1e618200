"use strict";
document.documentElement.classList.add("js");

addEventListener("DOMContentLoaded", () => {
  const form = document.querySelector("form.filter");
  const said = form.querySelector("output");
  const most = Number(document.body.dataset.most);
  const rows = [...document.querySelectorAll("table.board > tbody")].map(read);

  function read(body) {
    const table = body.parentNode;
    return {
      body,
      board: table.closest(".one"),
      network: table.closest(".network").dataset.network,
      framework: body.querySelector("th > button").firstChild.data,
      ranked: !table.closest(".unranked"),
      text: null,
    };
  }

  function open(body, wanted) {
    const button = body.querySelector("th > button");
    const now = wanted ?? button.getAttribute("aria-expanded") !== "true";
    button.setAttribute("aria-expanded", String(now));
    body.classList.toggle("open", now);
  }

  // Return a field's number or text, or null if it is empty. Empty fields are sorted last.
  function key(body, column) {
    const field = body.rows[0].cells[column];
    if (field.dataset.v !== undefined) return Number(field.dataset.v);
    const text = (field.querySelector("button")?.firstChild.data ?? field.textContent).trim();
    return text === "–" || text === "" ? null : text;
  }

  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  }

  function sort(header) {
    const table = header.closest("table");
    const up = header.getAttribute("aria-sort") !== "ascending";
    for (const other of header.parentNode.cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", up ? "ascending" : "descending");
    const known = [...table.tBodies].map((body) => [key(body, header.cellIndex), body]);
    known.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return up ? compare(a, b) : compare(b, a);
    });
    const sorted = document.createDocumentFragment();
    sorted.append(...known.map(([, body]) => body));
    table.append(sorted);
    shorten(table);
  }

  // Show only the first rows of a long table until the user clicks "Show all": see page.css.
  function shorten(table) {
    const rest = table.parentNode.nextElementSibling;
    if (!rest?.matches(".rest") || table.matches(".all")) return;
    let left = most;
    for (const body of table.tBodies) {
      if (!body.hidden) left -= 1;
      body.classList.toggle("later", left < 0);
    }
    rest.hidden = left >= 0;
  }

  function showAll(table) {
    table.classList.add("all");
    const rest = table.parentNode.nextElementSibling;
    if (rest?.matches(".rest")) rest.hidden = true;
  }

  function filter() {
    const wanted = new FormData(form);
    const words = wanted.get("words").toLowerCase().split(/\s+/).filter(Boolean);
    const boards = new Map();
    let shown = 0;
    for (const row of rows) {
      if (words.length && row.text === null) {
        const head = row.board.querySelector("h4").textContent;
        const name = row.board.parentNode.querySelector("h3").textContent;
        row.text = `${name} ${head} ${row.body.rows[0].textContent}`.toLowerCase();
      }
      const kept =
        (!wanted.get("network") || wanted.get("network") === row.network) &&
        (!wanted.get("framework") || wanted.get("framework") === row.framework) &&
        (!wanted.get("ranked") || row.ranked) &&
        words.every((word) => row.text.includes(word));
      row.body.hidden = !kept;
      shown += kept;
      for (const place of [row.body.parentNode, row.board, row.board.parentNode]) {
        boards.set(place, boards.get(place) || kept);
      }
    }
    for (const [place, kept] of boards) place.hidden = !kept;
    for (const table of new Set(rows.map((row) => row.body.parentNode))) shorten(table);
    said.value = `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
  }

  // Show and open the row or the study that a link leads to, even if a filter hides it.
  function arrive() {
    const target = document.getElementById(location.hash.slice(1));
    if (target?.matches(".study")) target.querySelector("details").open = true;
    const isHidden = target?.closest("[hidden]");
    if (isHidden) form.reset();
    if (isHidden || target?.tagName === "TBODY") filter();
    if (isHidden) target.scrollIntoView();
    if (target?.tagName !== "TBODY") return;
    if (target.matches(".later")) showAll(target.parentNode);
    open(target, true);
    target.querySelector("th > button").focus({ preventScroll: true });
    target.scrollIntoView({ block: "center" });
  }

  // Compare the layers of the two rows that the reader chooses. Without scripts, the page shows the
  // first pair. `layer_comparison.py` writes the same texts and explains the data.
  function compareLayers() {
    const section = document.getElementById("why-faster");
    const source = section?.querySelector("script");
    if (!source) return;
    const data = JSON.parse(source.textContent);
    const selects = [...section.querySelectorAll("select")];
    const part = (name) => section.querySelector(`[data-part="${name}"]`);
    const unknown = "–";

    function number(value) {
      const rounded = Number(value.toPrecision(3));
      return rounded.toLocaleString("en", { maximumFractionDigits: 20 });
    }

    const time = (value) => (value ? number(value) : unknown);
    const timedStep = (row) => (row.speed ? 1e6 / row.speed : 0);
    const percent = (share) => `${(100 * share).toFixed(0).replace(/^-0$/, "0")}%`;
    const ratio = (a, b) => (a > 0 && b > 0 ? number(b / a) : unknown);

    function limit(row, place) {
      const [, , units] = data.groups[row.group];
      return row.limits[place] === null ? unknown : `${row.limits[place]}% ${units[place]}`;
    }

    // Why the difference is not divided among the layers: the name of a note, or nothing.
    function obstacle(a, b) {
      const profiled = b.step - a.step;
      const timed = timedStep(b) - timedStep(a);
      if (Math.abs(profiled) < data.least * Math.max(a.step, b.step)) return "equal";
      if (!a.speed || !b.speed) return "untimed";
      if (profiled * timed < 0) return "opposite";
      return Math.abs(profiled - timed) > data.most * Math.abs(timed) ? "profilers" : "";
    }

    function matched(a, b) {
      const [names, kinds] = data.groups[a.group];
      const differences = names.map((_, place) => b.times[place] - a.times[place]);
      const largest = Math.max(...differences.map(Math.abs));
      const places = [...names.keys()];
      places.sort((p, q) => Math.abs(differences[q]) - Math.abs(differences[p]));
      return places.map((place) => ({
        fields: [
          names[place],
          kinds[place],
          time(a.times[place]),
          time(b.times[place]),
          ratio(a.times[place], b.times[place]),
          obstacle(a, b) ? unknown : percent(differences[place] / (b.step - a.step)),
          limit(a, place),
          limit(b, place),
        ],
        bar: (largest ? (100 * differences[place]) / largest : 0).toFixed(1).replace(/^-0.0$/, "0.0"),
      }));
    }

    function total(a, b) {
      const share = obstacle(a, b) ? unknown : "100%";
      const times = [time(a.step), time(b.step), ratio(a.step, b.step)];
      return { fields: ["step", unknown, ...times, share, unknown, unknown] };
    }

    function separate(row) {
      const [names, kinds] = data.groups[row.group];
      const places = [...names.keys()].sort((p, q) => row.times[q] - row.times[p]);
      return places.map((place) => ({
        fields: [
          names[place],
          kinds[place],
          time(row.times[place]),
          percent(row.times[place] / row.step),
          limit(row, place),
        ],
      }));
    }

    function draw(length) {
      const svg = section.querySelector("template").content.firstElementChild.cloneNode(true);
      const bar = svg.firstElementChild;
      bar.setAttribute("class", length.startsWith("-") ? "faster" : "slower");
      bar.setAttribute("d", `M0 0H${length}v8H0z`);
      return svg;
    }

    function write(table, line, place) {
      const headers = table.tHead.rows[0].cells;
      const row = document.createElement("tr");
      if (place >= data.shown) row.className = "later";
      line.fields.forEach((text, column) => {
        const cell = row.appendChild(document.createElement(column ? "td" : "th"));
        if (column) cell.dataset.c = headers[column].textContent;
        else cell.scope = "row";
        if (column > 1) cell.className = "n";
        cell.textContent = text;
        if (column === 5 && line.bar) cell.append(draw(line.bar));
      });
      return row;
    }

    function fill(table, lines, totals = []) {
      table.classList.remove("all");
      table.tBodies[0].replaceChildren(...lines.map((line, place) => write(table, line, place)));
      table.tFoot?.replaceChildren(...totals.map((line) => write(table, line, 0)));
      table.parentNode.nextElementSibling.hidden = lines.length <= data.shown;
    }

    function show() {
      const [a, b] = selects.map((select) => data.rows[select.value]);
      const equalLayers = a.group === b.group;
      for (const [name, row] of [["a", a], ["b", b]]) {
        part(name).querySelector("b").textContent = row.name;
        part(name).querySelector("span").textContent = row.details;
        fill(part(`only-${name}`), equalLayers ? [] : separate(row));
      }
      part("verdict").textContent =
        `A step takes ${time(timedStep(a))} µs per image in A and ${time(timedStep(b))} µs in B. ` +
        `With a profiler, it takes ${number(a.step)} µs in A and ${number(b.step)} µs in B.`;
      const notes = {
        unmatched: !equalLayers,
        boards: equalLayers && a.board !== b.board,
      };
      if (equalLayers) notes[obstacle(a, b)] = true;
      for (const note of section.querySelectorAll("[data-note]")) {
        note.hidden = !notes[note.dataset.note];
      }
      const table = part("matched").querySelector("table");
      fill(table, equalLayers ? matched(a, b) : [], equalLayers ? [total(a, b)] : []);
      part("matched").hidden = !equalLayers;
      part("separate").hidden = equalLayers;
    }

    const options = document.createDocumentFragment();
    for (const [place, row] of data.rows.entries()) {
      if (row.board !== data.rows[place - 1]?.board) {
        options.append(document.createElement("optgroup"));
        options.lastChild.label = data.boards[row.board];
      }
      options.lastChild.append(new Option(row.name, place));
    }
    selects.forEach((select, place) => {
      select.append(options.cloneNode(true));
      select.value = data.pair[place];
      select.addEventListener("change", show);
    });
  }

  function addCopyButton(code) {
    const [box, button, message] = ["div", "button", "output"].map((tag) =>
      document.createElement(tag),
    );
    box.className = "copyable";
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", `Copy ${code.textContent.trim()}`);
    code.replaceWith(box);
    box.append(code, button, message);
  }

  // A page that a server sends without encryption has no clipboard. There, the command is selected,
  // and the older function copies the selection.
  async function copy(button) {
    const [code, , message] = button.parentNode.children;
    try {
      await navigator.clipboard.writeText(code.textContent.trim());
      message.value = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      message.value = document.execCommand("copy") ? "Copied" : "Selected";
    }
    setTimeout(() => (message.value = ""), 2000);
  }

  document.addEventListener("click", (event) => {
    const copying = event.target.closest(".copyable button");
    if (copying) copy(copying);
    const rest = event.target.closest(".rest button");
    if (rest) showAll(rest.closest(".rest").previousElementSibling.firstElementChild);
    const button = event.target.closest("table.board th > button");
    if (!button) return;
    if (button.closest("thead")) sort(button.closest("th"));
    else open(button.closest("tbody"));
  });
  form.addEventListener("input", filter);
  form.addEventListener("reset", () => setTimeout(filter));
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", arrive);
  // Some browsers print closed details without their content.
  const closed = [];
  addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll(".study > details:not([open])")) {
      one.open = true;
      closed.push(one);
    }
  });
  addEventListener("afterprint", () => {
    for (const one of closed.splice(0)) one.open = false;
  });
  for (const code of document.querySelectorAll("code.command")) addCopyButton(code);
  compareLayers();
  arrive();
});
