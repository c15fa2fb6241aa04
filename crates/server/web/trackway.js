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
  };

  tellTimes();
  setInterval(tellTimes, 15000);
  if (document.querySelector("main[data-live]")) {
    let last = null;
    const stream = new EventSource("/live");
    stream.addEventListener("change", (event) => {
      if (last !== null && event.lastEventId !== last) renew();
      last = event.lastEventId;
    });
  }

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
