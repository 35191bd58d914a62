// Search, buttons that copy code, and blocks that the keyboard can scroll. Pages can be read without.

const box = document.querySelector(".search");
if (box) {
  const input = box.querySelector("input");
  const results = box.querySelector(".results");
  const status = box.querySelector("[role=status]");
  const list = box.querySelector("ol");
  let pages;
  box.hidden = false;

  /** Loads the index when its user begins to search. */
  const index = () => (pages ??= fetch(box.dataset.index).then((response) => {
    if (!response.ok) throw new Error(`${response.status}`);
    return response.json();
  }).then((all) => all.flatMap(({ path, title, parts }) => parts.map(([anchor, heading, text]) => ({
    path, anchor, title, heading, text, lower: `${title} ${heading} ${text}`.toLowerCase(), lowerText: text.toLowerCase(),
    lowerTitle: title.toLowerCase(), lowerHeading: heading.toLowerCase(),
    // A guide helps more often than the reason of a decision or an old change.
    weight: /^\/(decisions\/|changelog|performance)/.test(path) ? 0.4 : 1,
  })))).catch((error) => { pages = undefined; throw error; }));

  const score = (part, words) => part.weight * words.reduce((sum, word) => sum
    + (part.lowerHeading.startsWith(word) ? 14 : part.lowerHeading.includes(word) ? 10 : 0)
    + (part.lowerTitle.includes(word) ? (part.heading ? 4 : 16) : 0)
    + Math.min(part.lowerText.split(word, 6).length - 1, 5), 0);

  const find = (all, words) => all.filter((part) => words.every((word) => part.lower.includes(word)))
    .map((part) => [score(part, words), part]).sort(([a], [b]) => b - a).map(([, part]) => part);

  /** Writes text into an element, with the words marked. */
  const mark = (element, text, words) => {
    const pattern = new RegExp(`(${words.map((word) => word.replace(/[^\p{L}\p{N}]/gu, "\\$&")).join("|")})`, "giu");
    text.split(pattern).forEach((piece, i) => {
      if (i % 2 === 0) return element.append(piece);
      element.append(Object.assign(document.createElement("mark"), { textContent: piece }));
    });
  };

  const address = (part) => {
    const start = box.dataset.start;
    const page = !start.endsWith("index.html") ? start + (part.path === "/" ? "" : part.path)
      : part.path === "/" ? start : start.slice(0, -"index.html".length) + `${part.path.slice(1)}.html`;
    return part.anchor ? `${page}#${part.anchor}` : page;
  };

  const item = (part, words) => {
    const link = Object.assign(document.createElement("a"), { href: address(part) });
    const title = document.createElement("strong"), excerpt = document.createElement("span");
    mark(title, part.heading ? `${part.title} › ${part.heading}` : part.title, words);
    const places = words.map((word) => part.lowerText.indexOf(word)).filter((place) => place >= 0);
    const from = places.length ? Math.max(0, part.text.lastIndexOf(" ", Math.min(...places) - 50) + 1) : 0;
    const to = from + 160 < part.text.length ? part.text.lastIndexOf(" ", from + 160) : part.text.length;
    mark(excerpt, (from > 0 ? "… " : "") + part.text.slice(from, to) + (to < part.text.length ? " …" : ""), words);
    link.append(title, excerpt);
    const li = document.createElement("li");
    li.append(link);
    return li;
  };

  const search = async () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    results.hidden = words.length === 0;
    if (words.length === 0) return;
    if (!pages) status.textContent = "Loading the index …";
    try {
      const all = await index();
      if (input.value.toLowerCase().split(/\s+/).filter(Boolean).join(" ") !== words.join(" ")) return; // typed on
      const found = find(all, words);
      status.textContent = found.length === 0 ? "Nothing has all of these words."
        : found.length > 12 ? `The best 12 of ${found.length} results` : found.length === 1 ? "1 result" : `${found.length} results`;
      list.replaceChildren(...found.slice(0, 12).map((part) => item(part, words)));
    } catch (error) {
      status.textContent = `The index could not be loaded (${error.message}). Type on to try again.`;
    }
  };

  const close = () => { results.hidden = true; };
  input.addEventListener("input", search);
  input.addEventListener("focus", search);
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName) || document.activeElement.isContentEditable;
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      input.focus();
    }
  });
  box.addEventListener("keydown", (event) => {
    const stops = [input, ...list.querySelectorAll("a")];
    const at = stops.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") {
      close();
      input.blur();
    } else if (event.key === "Enter" && at === 0) {
      stops[1]?.click();
    } else if (step && !results.hidden) {
      event.preventDefault();
      stops[Math.max(0, Math.min(stops.length - 1, at + step))].focus();
    }
  });
  box.addEventListener("focusout", ({ relatedTarget }) => { if (relatedTarget && !box.contains(relatedTarget)) close(); });
  document.addEventListener("pointerdown", ({ target }) => { if (!box.contains(target)) close(); });
  list.addEventListener("click", close); // a result may be on this page
}

// A browser gives the clipboard only to secure pages.
for (const block of navigator.clipboard ? document.querySelectorAll(".code:not([data-language=text])") : []) {
  const button = Object.assign(document.createElement("button"), { type: "button", className: "copy", textContent: "Copy" });
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(block.querySelector("code").textContent).then(
      () => { button.textContent = "Copied"; }, () => { button.textContent = "Refused"; });
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  block.append(button);
}

// The keyboard scrolls only what has the focus.
const focusable = () => {
  for (const block of document.querySelectorAll("main pre, main .table")) {
    if (block.scrollWidth > block.clientWidth) block.tabIndex = 0;
    else block.removeAttribute("tabindex");
  }
};
focusable();
addEventListener("resize", focusable);

// A picture leads to the form of it that is shown.
for (const link of document.querySelectorAll("a.screenshot")) {
  link.addEventListener("click", () => { link.href = link.querySelector("img").currentSrc || link.href; });
}
