"use strict";
(() => {
  const STEP = 100;
  const translations = document.getElementById("translations");
  const WORDS = translations ? JSON.parse(translations.textContent) : {};
  /* A text in the page's language, its placeholders filled. */
  const t = (text, values = {}) => (WORDS[text] || text).replace(/\{(\w+)\}/g, (_, name) => values[name]);
  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };

  /* The theme: as the system has it, light, dark; kept where the browser lets a file keep anything. */
  const theme = document.getElementById("theme");
  const themes = ["system", "light", "dark"];
  const setTheme = (name) => {
    if (name === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    theme.textContent = {system: t("Theme: system"), light: t("Theme: light"), dark: t("Theme: dark")}[name];
    try { localStorage.setItem("npudump-theme", name); } catch { /* a file of its own origin may keep nothing */ }
  };
  let now = "system";
  try { now = localStorage.getItem("npudump-theme") || "system"; } catch { /* as above */ }
  if (!themes.includes(now)) now = "system";
  setTheme(now);
  theme.hidden = false;
  theme.addEventListener("click", () => { now = themes[(themes.indexOf(now) + 1) % 3]; setTheme(now); });

  for (const button of document.querySelectorAll(".copy")) {
    if (!navigator.clipboard) continue;
    button.hidden = false;
    button.addEventListener("click", async () => {
      try { await navigator.clipboard.writeText(button.previousElementSibling.textContent); button.textContent = t("Copied"); }
      catch { button.textContent = t("Not allowed"); }
    });
  }

  const unpack = async (text) => {
    const octets = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
    const stream = new Blob([octets]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).json();
  };
  const shareText = (share) => share === -2 ? "-" : share === -1 ? "∞" : share === 0 ? "0" : `${share}×`;
  const shareRank = (share) => share === -1 ? Infinity : share === -2 ? -1 : share;

  const COLUMNS = [
    ["#", (data, at) => at, ""],
    [t("Tensor"), (data, at) => data.key[at], ""],
    [t("Type"), (data, at) => data.words[data.type[at]], "wide"],
    [t("State"), (data, at) => data.state[at], ""],
    [t("Statistic"), (data, at) => data.words[data.decided[at]], "wide"],
    [t("Golden"), (data, at) => Number(data.words[data.pair[2 * at]]), ""],
    [t("This run"), (data, at) => Number(data.words[data.pair[2 * at + 1]]), ""],
    [t("Tolerance"), (data, at) => Number(data.words[data.allowed[at]].slice(2)), ""],
    [t("x tol"), (data, at) => -shareRank(data.share[at]), ""],
  ];

  class Table {
    constructor(host, data) {
      this.host = host; this.data = data; this.column = 0; this.down = false; this.most = STEP; this.opened = new Set();
      this.test = host.closest(".test");
      this.search = make("input", { type: "search", placeholder: t("Search layers and types") });
      this.search.setAttribute("aria-label", t("Search layers and types"));
      this.filter = make("select");
      this.filter.setAttribute("aria-label", t("Show"));
      const failing = data.state.some((state) => state < 3), same = data.states.indexOf("identical");
      this.filter.append(make("option", { value: "all", textContent: t("All tensors") }));
      this.filter.append(make("option", { value: "failing", textContent: t("Mismatches") }));
      this.filter.append(make("option", { value: "differing", textContent: t("All but identical") }));
      data.states.forEach((name, at) => {
        if (data.state.includes(at)) this.filter.append(make("option", { value: String(at), textContent: t("Only {state}", { state: t(name) }) }));
      });
      this.filter.value = failing ? "failing" : data.state.some((state) => state !== same) ? "differing" : "all";
      this.shown = make("span", { className: "shown" });
      this.shown.setAttribute("role", "status");
      this.body = make("tbody");
      const row = make("tr");
      this.heads = COLUMNS.map(([title, , style], at) => {
        const button = make("button", { type: "button", textContent: title });
        button.addEventListener("click", () => this.sort(at));
        const head = make("th", { scope: "col", className: style }, button);
        row.append(head);
        return head;
      });
      this.more = make("button", { type: "button" });
      this.more.addEventListener("click", () => { this.most += 2 * STEP; this.draw(); });
      this.search.addEventListener("input", () => { this.most = STEP; this.draw(); });
      this.filter.addEventListener("change", () => { this.most = STEP; this.draw(); });
      if (data.prefix) host.append(make("p", { className: "aside" }, t("  names that start with .../ begin with {prefix}", { prefix: data.prefix })));
      host.append(
        make("div", { className: "tools" }, this.search, this.filter, this.shown),
        make("div", { className: "rows", tabIndex: 0 }, make("table", { className: "list" }, make("thead", {}, row), this.body)),
        this.more);
      this.draw();
    }

    sort(column) {
      this.down = this.column === column && !this.down;
      this.column = column;
      this.draw();
    }

    positions() {
      const { data } = this, wanted = this.filter.value, text = this.search.value.trim().toLowerCase();
      const same = data.states.indexOf("identical");
      const found = [];
      for (let at = 0; at < data.key.length; at++) {
        const state = data.state[at];
        if (wanted === "failing" && state >= 3 || wanted === "differing" && state === same) continue;
        if (/^\d/.test(wanted) && state !== Number(wanted)) continue;
        if (text && !`${data.key[at]} ${data.words[data.type[at]]}`.toLowerCase().includes(text)) continue;
        found.push(at);
      }
      const value = COLUMNS[this.column][1], sign = this.down ? -1 : 1;
      return found.sort((one, other) => {
        const a = value(data, one), b = value(data, other);
        const gone = Number.isNaN(a) - Number.isNaN(b);  // what is no number stands last, either way
        return gone || (a < b ? -sign : a > b ? sign : 0) || one - other;
      });
    }

    draw() {
      const found = this.positions();
      this.body.replaceChildren();
      for (const at of found.slice(0, this.most)) {
        this.body.append(this.row(at));
        if (this.opened.has(at)) this.body.append(this.detail(at));
      }
      this.shown.textContent = t("{shown} of {found} shown, {all} in all",
        { shown: Math.min(found.length, this.most), found: found.length, all: this.data.key.length });
      this.more.hidden = found.length <= this.most;
      this.more.textContent = t("Show {count} more", { count: Math.min(2 * STEP, found.length - this.most) });
      this.heads.forEach((head, at) => {
        if (at === this.column) head.setAttribute("aria-sort", this.down ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
    }

    name(at) {
      const { key, prefix } = this.data;
      return prefix && key[at].startsWith(prefix) ? `.../${key[at].slice(prefix.length)}` : key[at];
    }

    row(at) {
      const { data } = this, state = data.states[data.state[at]];
      const key = make("button", { type: "button", className: "key", textContent: this.name(at), title: data.key[at] });
      key.setAttribute("aria-expanded", String(this.opened.has(at)));
      key.addEventListener("click", () => {
        if (!this.opened.delete(at)) this.opened.add(at);
        this.draw();
        this.body.querySelector(`tr[data-at="${at}"] .key`).focus({ preventScroll: true });
      });
      const row = make("tr", {},
        make("td", { textContent: at + 1 }), make("td", {}, key),
        make("td", { className: "wide", textContent: data.words[data.type[at]] }),
        make("td", { className: "state" }, make("i", { className: state }), ` ${t(state)}`),
        make("td", { className: "wide", textContent: data.words[data.decided[at]] }),
        make("td", { className: "number", textContent: data.words[data.pair[2 * at]] }),
        make("td", { className: "number", textContent: data.words[data.pair[2 * at + 1]] }),
        make("td", { className: "number", textContent: data.words[data.allowed[at]] }),
        make("td", { className: "number", textContent: shareText(data.share[at]) }));
      row.dataset.at = at;
      return row;
    }

    detail(at) {
      const { data } = this, cell = make("td", { colSpan: COLUMNS.length });
      cell.append(make("p", { className: "aside", textContent: data.words[data.kind[at]] }));
      const sides = data.statistics[at];
      if (sides) {
        const body = make("tbody");
        data.names.forEach((name, column) => {
          const values = sides.map((side) => side.length ? side[column] : "-");
          const row = make("tr", { className: values[0] === values[1] ? "" : "differs" }, make("th", { scope: "row", textContent: name }));
          row.append(...values.map((value) => make("td", { className: "number", textContent: value })));
          body.append(row);
        });
        const head = make("tr", {}, make("th"), make("th", { scope: "col", textContent: t("Golden") }), make("th", { scope: "col", textContent: t("This run") }));
        cell.append(make("table", {}, make("thead", {}, head), body));
      } else {
        cell.append(make("p", { className: "aside", textContent: data.states[data.state[at]] === "identical"
          ? t("Both sides have the same statistics.") : t("Its statistics are in report.json beside the dump.") }));
      }
      const rule = data.words[data.rule[at]];
      if (rule) cell.append(make("p", { className: "aside", textContent: t("Rule: {rule}", { rule }) }));
      const card = [...this.test.querySelectorAll(".card")].find((one) => one.dataset.key === data.key[at]);
      if (card) {
        const link = make("button", { type: "button", textContent: t("Its elements") });
        link.addEventListener("click", () => { card.classList.add("chosen"); card.scrollIntoView({ block: "start" }); });
        cell.append(link);
      }
      const row = make("tr", { className: "detail" }, cell);
      return row;
    }

    reveal(at) {
      this.search.value = this.data.key[at];
      this.filter.value = "all";
      this.opened.add(at);
      this.draw();
      const row = this.body.querySelector(`tr[data-at="${at}"]`);
      row.scrollIntoView({ block: "center" });
      row.querySelector(".key").focus({ preventScroll: true });
    }
  }

  const start = async (host) => {
    const data = await unpack(host.querySelector("script").textContent);
    const table = new Table(host, data), test = host.closest(".test");
    const hint = test.querySelector(".hint");
    const told = (at) => `${at + 1}. ${data.key[at]} (${data.words[data.type[at]] || t("type unknown")}): ` +
      t("{state}, error {share} of its tolerance", { state: t(data.states[data.state[at]]), share: shareText(data.share[at]) });
    for (const svg of test.querySelectorAll(".strip, .graph")) {
      svg.addEventListener("mouseover", (event) => {
        const mark = event.target.closest("[data-at]");
        if (mark) hint.textContent = told(Number(mark.dataset.at));
      });
      svg.addEventListener("click", (event) => {
        const mark = event.target.closest("[data-at]");
        if (mark) table.reveal(Number(mark.dataset.at));
      });
    }
    for (const frame of test.querySelectorAll(".graph-frame")) {
      const source = frame.querySelector(".operator.source").getBoundingClientRect(), seen = frame.getBoundingClientRect();
      frame.scrollLeft = (source.left + source.right - seen.left - seen.right) / 2;
    }
    host.dataset.ready = "yes";
  };
  for (const test of document.querySelectorAll(".test")) {
    const host = test.querySelector(".tensors");
    if (!host) continue;
    let begun = false;
    const begin = () => { if (test.open && !begun) { begun = true; start(host); } };
    test.addEventListener("toggle", begin);
    begin();
  }
  /* Totals show tests of their kind only; j and k go from one shown test to the next. */
  const totals = [...document.querySelectorAll(".total")];
  for (const total of totals) total.addEventListener("click", () => {
    const word = total.getAttribute("aria-pressed") === "true" ? "" : total.dataset.word;
    for (const one of totals) one.setAttribute("aria-pressed", String(one.dataset.word === word));
    for (const one of document.querySelectorAll("#first, tr[data-word], .test")) one.hidden = word && one.dataset.word !== word;
  });
  addEventListener("keydown", (event) => {
    const step = { j: 1, k: -1 }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select")) return;
    const tests = [...document.querySelectorAll(".test:not([hidden])")];
    const next = tests[tests.indexOf(document.activeElement.closest(".test")) + step];
    if (!next) return;
    next.open = true;
    next.querySelector("summary").focus({ preventScroll: true });
    next.scrollIntoView();
  });
  const unfold = () => {
    const test = location.hash ? document.getElementById(location.hash.slice(1)) : null;
    if (test && test.matches("details")) { test.open = true; test.scrollIntoView(); }
  };
  addEventListener("hashchange", unfold);
  unfold();
})();
