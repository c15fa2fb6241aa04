// Optional enhancements: relative times, pages that follow live events, and boards with drag and drop. Every page works
// without this script.
(() => {
  "use strict";
  const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const words = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });

  const showRelativeTimes = () => {
    const now = Date.now();
    for (const time of document.querySelectorAll("time[datetime]")) {
      const seconds = (Date.parse(time.dateTime) - now) / 1000;
      if (Number.isNaN(seconds)) continue;
      const [unit, length] = units.find(([, length]) => Math.abs(seconds) >= length) || units[3];
      if (Math.abs(seconds) < 86400 * 30) time.textContent = words.format(Math.round(seconds / length), unit);
    }
  };

  // A live page is updated in place: only the parts that changed are replaced, so that scroll positions, focus,
  // selection and open details are kept. A form in use is not updated until the reader leaves it.
  let hasSkippedForm = false;
  const isInUse = (form) => form.contains(document.activeElement) || (form.closest("details[open]") && form.closest(".actions"));
  const keyOf = (node) => {
    if (node.nodeType !== 1) return "";
    if (node.id) return node.id;
    if (/^(LI|TR)$/.test(node.tagName)) return node.querySelector("a[href]")?.getAttribute("href") ?? node.querySelector("time")?.dateTime ?? "";
    return /^H\d$/.test(node.tagName) ? node.textContent : node.className;
  };
  const isSameElement = (one, other) => one.nodeName === other.nodeName && keyOf(one) === keyOf(other);
  const morph = (old, fresh) => {
    if (old.nodeType !== 1) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    if (old.tagName === "FORM" && isInUse(old)) {
      hasSkippedForm = true;
      return;
    }
    if (old.tagName === "TIME" && old.dateTime === fresh.dateTime) return;
    for (const { name, value } of [...fresh.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    for (const { name } of [...old.attributes]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    const left = [...old.childNodes];
    const pairs = [...fresh.childNodes].map((node) => {
      const found = left.findIndex((candidate) => isSameElement(candidate, node));
      return [node, found < 0 ? null : left.splice(found, 1)[0]];
    });
    for (const node of left) node.remove();
    let cursor = old.firstChild;
    for (const [node, existing] of pairs) {
      // Removes the white space before an element instead of moving the element, because a moved element loses its
      // scroll position.
      while (existing?.nodeType === 1 && cursor && cursor !== existing && cursor.nodeType !== 1) {
        const space = cursor;
        cursor = cursor.nextSibling;
        space.remove();
      }
      if (existing && existing === cursor) cursor = cursor.nextSibling;
      else old.insertBefore(existing ?? node, cursor);
      if (existing) morph(existing, node);
    }
  };

  const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
  let isPending = false;
  let isReloading = false;
  // Reloads at most once per second. Events during a reload, or while the page is hidden, cause another reload
  // afterwards.
  const reload = async () => {
    isPending = true;
    if (isReloading) return;
    isReloading = true;
    for (let pause = 300; isPending && !document.hidden; pause = 1000) {
      await sleep(pause);
      isPending = false;
      await fetchAndMorph().catch(() => sleep(4000).then(() => { isPending = true; }));
    }
    isReloading = false;
  };
  const fetchAndMorph = async () => {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.status === 429 || answer.status >= 500) throw new Error(answer.statusText);
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("main");
    if (!fresh) return;
    document.title = page.title;
    hasSkippedForm = false;
    morph(document.querySelector("main"), fresh);
    showRelativeTimes();
    drawBoard();
    follow();
  };
  const catchUp = () => { if (hasSkippedForm || isPending) setTimeout(reload); };
  addEventListener("toggle", catchUp, true);
  addEventListener("focusout", catchUp);

  // Boards: draws relations as arrows, and lets readers drag stickies to another column.
  const svgElement = (name, fields) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [field, value] of Object.entries(fields)) element.setAttribute(field, value);
    return element;
  };
  // Arrows run in the gaps between columns, and above the columns they pass, so that they cross no card.
  const drawBoard = () => {
    const board = document.querySelector("[data-board]");
    if (!board) return;
    board.querySelector(":scope > svg")?.remove();
    const columns = [...board.querySelectorAll(".column")].map((column) => column.getBoundingClientRect());
    // If the columns are stacked, there are no gaps for arrows. The list of relations below the board is enough.
    if (columns.length < 2 || columns[0].top !== columns.at(-1).top) return;
    const svg = svgElement("svg", { "aria-hidden": "true" });
    const marker = svgElement("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 5, markerHeight: 5, orient: "auto" });
    marker.append(svgElement("path", { d: "M0 0 8 4 0 8z" }));
    svg.append(marker);
    const origin = board.getBoundingClientRect();
    const columnOf = (box) => columns.findIndex((column) => box.left >= column.left && box.right <= column.right);
    let drawn = 0;
    for (const relation of document.querySelectorAll(".relations li")) {
      const [from, to] = ["from", "to"].map((end) => document.getElementById(`s-${relation.dataset[end]}`)?.getBoundingClientRect());
      if (!from || !to) continue;
      const [first, last] = [columnOf(from), columnOf(to)];
      if (first < 0 || last < 0) continue;
      const [y1, y2] = [from, to].map((box) => box.top + Math.min(22, box.height / 2) - origin.top);
      const lane = 8 + 5 * (drawn++ % 4);
      const goesRight = last > first;
      // The last column has no gap to its right, so arrows within it use the gap to its left.
      const isLastColumn = first === last && first === columns.length - 1;
      const x1 = (goesRight || (first === last && !isLastColumn) ? from.right : from.left) - origin.left;
      const x2 = (last > first || isLastColumn ? to.left : to.right) - origin.left;
      const out = x1 + (x1 === from.right - origin.left ? 10 + lane : -10 - lane);
      const into = first === last ? out : x2 + (x2 === to.left - origin.left ? -10 - lane : 10 + lane);
      const isFar = Math.abs(last - first) > 1;
      const path = isFar
        ? `M${x1} ${y1} H${out} V${-lane} H${into} V${y2} H${x2}`
        : `M${x1} ${y1} H${out} V${y2} H${x2}`;
      svg.append(svgElement("path", { d: path, "marker-end": "url(#tip)" }));
      const text = svgElement("text", isFar
        ? { x: (out + into) / 2, y: -lane - 3, "text-anchor": "middle" }
        : { x: out, y: y1 === y2 ? y1 - 5 : (y1 + y2) / 2, "text-anchor": "middle" });
      text.textContent = relation.querySelector(".state").textContent;
      svg.append(text);
    }
    board.append(svg);
  };
  let dragged = null;
  const columnOf = (event) => event.target.closest?.("[data-board] .column");
  addEventListener("dragstart", (event) => { dragged = event.target.closest?.("[data-stickie]"); });
  addEventListener("dragend", () => { dragged = null; });
  addEventListener("dragover", (event) => {
    if (!dragged) return;
    for (const column of document.querySelectorAll(".column.over")) column.classList.remove("over");
    const column = columnOf(event);
    if (!column) return;
    column.classList.add("over");
    event.preventDefault();
  });
  addEventListener("drop", async (event) => {
    const column = columnOf(event);
    if (!dragged || !column) return;
    event.preventDefault();
    column.classList.remove("over");
    const card = dragged;
    const answer = await fetch(`/stickies/${card.dataset.stickie}/actions/update_stickie`, {
      method: "POST",
      headers: { "content-type": "application/json", accept: "application/json" },
      body: JSON.stringify({ priority: column.dataset.priority || null }),
    });
    if (!answer.ok) return;
    column.querySelector("ul").append(card);
    card.querySelector("select").value = column.dataset.priority;
    drawBoard();
  });
  addEventListener("resize", drawBoard);

  // On narrow screens, scrolls the navigation bar to the current page.
  const here = document.querySelector("nav [aria-current]");
  if (here) here.closest("nav").scrollLeft = here.offsetLeft - 60;

  showRelativeTimes();
  drawBoard();
  setInterval(showRelativeTimes, 15000);
  // Browsers limit the number of connections per server. A hidden page therefore closes its stream, and catches up when
  // it becomes visible.
  let stream = null;
  let lastPosition = null;
  const follow = () => {
    if (document.hidden || !document.querySelector("main[data-live]")) {
      stream?.close();
      stream = null;
    } else if (!stream) {
      stream = new EventSource("/live");
      stream.addEventListener("change", (event) => {
        const { position, events, cut } = JSON.parse(event.data);
        const watched = new Set(document.querySelector("main").dataset.live?.split(" "));
        const concerns = ({ kind, id, within }) => [kind, id, ...within].some((name) => watched.has(name));
        const hasMissedSome = !events.length && lastPosition !== null && position !== lastPosition;
        if (cut || hasMissedSome || events.some(concerns)) reload();
        lastPosition = position;
      });
    }
  };
  document.addEventListener("visibilitychange", () => {
    follow();
    catchUp();
  });
  follow();

  // Keyboard shortcuts: g and a letter open a page, / focuses the search.
  const pages = { o: "/", r: "/runs", t: "/tasks", q: "/queue", a: "/agents", s: "/sessions", c: "/conversations", d: "/decisions", n: "/notes", b: "/boards" };
  let isGoPressed = false;
  addEventListener("keydown", (event) => {
    if (event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (isGoPressed && pages[event.key]) location.href = pages[event.key];
    isGoPressed = event.key === "g";
    if (event.key === "/") {
      event.preventDefault();
      document.querySelector(".find input").focus();
    }
  });
})();
