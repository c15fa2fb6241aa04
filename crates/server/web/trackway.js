// A little help for pages that work without it: times that say how long ago, and lists that follow what happens.
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

  // What somebody is filling in or reading is not taken away from under them.
  const isBusy = () => {
    const active = document.activeElement;
    const typing = active && active.matches("input, textarea, select");
    return typing || !getSelection().isCollapsed || document.querySelector("main details[open]");
  };

  let waiting = false;
  const renew = async () => {
    if (waiting) return;
    waiting = true;
    await new Promise((done) => setTimeout(done, 300));
    waiting = false;
    if (isBusy() || document.hidden) return;
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    const main = document.querySelector("main");
    if (!fresh || fresh.innerHTML === main.dataset.last) return;
    main.dataset.last = fresh.innerHTML;
    const focused = document.activeElement && document.activeElement.getAttribute("href");
    main.innerHTML = fresh.innerHTML;
    if (!fresh.hasAttribute("data-live")) main.removeAttribute("data-live");
    if (focused) main.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
    tellTimes();
    drawBoard();
  };

  // A board: relations as arrows between stickies, and stickies that can be dragged to another column.
  const svgElement = (name, fields) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [field, value] of Object.entries(fields)) element.setAttribute(field, value);
    return element;
  };
  const drawBoard = () => {
    const board = document.querySelector("[data-board]");
    if (!board) return;
    board.querySelector(":scope > svg")?.remove();
    const svg = svgElement("svg", { "aria-hidden": "true" });
    const marker = svgElement("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 5, markerHeight: 5, orient: "auto" });
    marker.append(svgElement("path", { d: "M0 0 8 4 0 8z" }));
    svg.append(marker);
    let drawn = 0;
    const origin = board.getBoundingClientRect();
    for (const relation of document.querySelectorAll(".relations li")) {
      const [from, to] = ["from", "to"].map((end) => document.getElementById(`s-${relation.dataset[end]}`)?.getBoundingClientRect());
      if (!from || !to) continue;
      const sameColumn = Math.abs(from.left - to.left) < 5;
      const leftward = to.left < from.left;
      const x1 = (leftward ? from.left : from.right) - origin.left;
      const x2 = (sameColumn ? to.right : leftward ? to.right : to.left) - origin.left;
      const [y1, y2] = [from, to].map((box) => box.top + Math.min(24, box.height / 2) - origin.top);
      const bend = sameColumn ? 28 : (x2 - x1) / 2;
      svg.append(svgElement("path", { d: `M${x1} ${y1} C${x1 + bend} ${y1} ${sameColumn ? x2 + bend : x2 - bend} ${y2} ${x2} ${y2}`, "marker-end": "url(#tip)" }));
      const text = svgElement("text", { x: sameColumn ? x1 + 6 : (x1 + x2) / 2, y: (y1 + y2) / 2 - 4 + 12 * (drawn++ % 3), "text-anchor": sameColumn ? "start" : "middle" });
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
        if (events.length || cut || (last !== null && position !== last)) renew();
        last = position;
      });
    }
  };
  document.addEventListener("visibilitychange", follow);
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
