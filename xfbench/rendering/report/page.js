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
    if (target?.matches(".network") && target.hidden) form.reset();
    if (target?.tagName !== "TBODY") return;
    if (target.hidden) form.reset();
    filter();
    if (target.matches(".later")) showAll(target.parentNode);
    open(target, true);
    target.querySelector("th > button").focus({ preventScroll: true });
    target.scrollIntoView({ block: "center" });
  }

  document.addEventListener("click", (event) => {
    const rest = event.target.closest(".rest button");
    if (rest) showAll(rest.closest(".rest").previousElementSibling.firstElementChild);
    const button = event.target.closest("table.board button");
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
  arrive();
});
