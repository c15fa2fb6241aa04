// A little help for pages that work without it: times that say how long ago, pages that follow what
// happens, boards.
(() => {
  "use strict";
  const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const words = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });

  const tellTimes = () => {
    const now = Date.now();
    for (const time of document.querySelectorAll("time[datetime]")) {
      const seconds = (Date.parse(time.dateTime) - now) / 1000;
      if (Number.isNaN(seconds)) continue;
      const [unit, length] = units.find(([, length]) => Math.abs(seconds) >= length) || units[3];
      if (Math.abs(seconds) < 86400 * 30) time.textContent = words.format(Math.round(seconds / length), unit);
    }
  };

  // A page that is renewed becomes the new one piece by piece: what stays the same is not touched, so that scrolling, the
  // focus, marked text and what was opened stay where they are. A form somebody is at is left alone until they leave it.
  let leftAlone = false;
  const isBusy = (form) => form.contains(document.activeElement) || (form.closest("details[open]") && form.closest(".actions"));
  const keyOf = (node) => {
    if (node.nodeType !== 1) return "";
    if (node.id) return node.id;
    if (/^(LI|TR)$/.test(node.tagName)) return node.querySelector("a[href]")?.getAttribute("href") ?? node.querySelector("time")?.dateTime ?? "";
    return /^H\d$/.test(node.tagName) ? node.textContent : node.className;
  };
  const isAlike = (one, other) => one.nodeName === other.nodeName && keyOf(one) === keyOf(other);
  const become = (old, fresh) => {
    if (old.nodeType !== 1) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    if (old.tagName === "FORM" && isBusy(old)) {
      leftAlone = true;
      return;
    }
    if (old.tagName === "TIME" && old.dateTime === fresh.dateTime) return;
    for (const { name, value } of [...fresh.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    for (const { name } of [...old.attributes]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    const left = [...old.childNodes];
    const pairs = [...fresh.childNodes].map((node) => {
      const found = left.findIndex((candidate) => isAlike(candidate, node));
      return [node, found < 0 ? null : left.splice(found, 1)[0]];
    });
    for (const node of left) node.remove();
    let place = old.firstChild;
    for (const [node, kept] of pairs) {
      // Space between things makes way for them: a thing that is moved loses where it was scrolled to.
      while (kept?.nodeType === 1 && place && place !== kept && place.nodeType !== 1) {
        const space = place;
        place = place.nextSibling;
        space.remove();
      }
      if (kept && kept === place) place = place.nextSibling;
      else old.insertBefore(kept ?? node, place);
      if (kept) become(kept, node);
    }
  };

  const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
  let pending = false;
  let renewing = false;
  // Whatever happens while it is fetched, or while nobody looks, is fetched afterwards; once a second is often enough.
  const renew = async () => {
    pending = true;
    if (renewing) return;
    renewing = true;
    for (let pause = 300; pending && !document.hidden; pause = 1000) {
      await sleep(pause);
      pending = false;
      await fetchAgain().catch(() => sleep(4000).then(() => { pending = true; }));
    }
    renewing = false;
  };
  const fetchAgain = async () => {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.status === 429 || answer.status >= 500) throw new Error(answer.statusText);
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("main");
    if (!fresh) return;
    document.title = page.title;
    leftAlone = false;
    become(document.querySelector("main"), fresh);
    tellTimes();
    drawBoard();
    follow();
  };
  const catchUp = () => { if (leftAlone || pending) setTimeout(renew); };
  addEventListener("toggle", catchUp, true);
  addEventListener("focusout", catchUp);

  // A board: relations as arrows between stickies, and stickies that can be dragged to another column.
  const svgElement = (name, fields) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [field, value] of Object.entries(fields)) element.setAttribute(field, value);
    return element;
  };
  // An arrow leaves and enters between columns, and passes above those in between: it crosses no card.
  const drawBoard = () => {
    const board = document.querySelector("[data-board]");
    if (!board) return;
    board.querySelector(":scope > svg")?.remove();
    const columns = [...board.querySelectorAll(".column")].map((column) => column.getBoundingClientRect());
    // Columns below each other leave no way between them; the list of relations says the same.
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
      // The last column has no gap to its right: what stays within it goes along its left.
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

  // On a narrow screen the bar at the top is scrolled to where one is.
  const here = document.querySelector("nav [aria-current]");
  if (here) here.closest("nav").scrollLeft = here.offsetLeft - 60;

  tellTimes();
  drawBoard();
  setInterval(tellTimes, 15000);
  // A browser opens few connections to a server: a page that nobody looks at keeps none, and catches up when it is seen.
  let stream = null;
  let last = null;
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
        const hasMissedSome = !events.length && last !== null && position !== last;
        if (cut || hasMissedSome || events.some(concerns)) renew();
        last = position;
      });
    }
  };
  document.addEventListener("visibilitychange", () => {
    follow();
    catchUp();
  });
  follow();

  // Keys: g then a letter goes to a page, / goes to the search.
  const pages = { o: "/", r: "/runs", t: "/tasks", q: "/queue", a: "/agents", s: "/sessions", c: "/conversations", d: "/decisions", n: "/notes", b: "/boards" };
  let going = false;
  addEventListener("keydown", (event) => {
    if (event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (going && pages[event.key]) location.href = pages[event.key];
    going = event.key === "g";
    if (event.key === "/") {
      event.preventDefault();
      document.querySelector(".find input").focus();
    }
  });
})();
