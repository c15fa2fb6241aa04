// Live pages: they follow events without disturbing their readers.

import assert from "node:assert/strict";
import { after, test } from "node:test";

import { TestServer, browser } from "./test_server.js";

after(() => browser.close());

/** Starts a server with a running run, and opens its page. */
async function openLivePage(path = (run) => `/runs/${run.run_id}`) {
  const env = await TestServer.open();
  env.run("workflow", "set", "--name", "unit");
  env.run("task", "set", "--workflow", "unit", "--variant", "unit/go");
  env.run("agent", "set", "--handle", "ada");
  const run = env.run("run", "start", "--agent", "ada", "--task", "unit/go");
  const step = (detail) => env.runAs(run.token, "run", "step", run.run_id, "--type", "shell", "--detail", detail);
  step(`the first\n${"a line of what was said\n".repeat(60)}`);
  const page = await env.visit(path(run));
  await untilLive(page);
  page.reloads = 0;
  page.on("request", (request) => { if (request.resourceType() === "fetch") page.reloads += 1; });
  return { env, run, step, page };
}

/** Waits until the event stream of the page is open: its first event says so. */
const untilLive = (page) => page.waitForFunction(() => document.documentElement.dataset.isLive);

test("live updates keep open details, scroll positions and focus", async () => {
  const { env, run, step, page } = await openLivePage();
  await page.locator(".timeline summary").click();
  await page.locator(".timeline pre").evaluate((pre) => { pre.scrollTop = 200; });
  await page.locator(".facts a").first().focus();
  const focused = await page.evaluate("document.activeElement.href");
  step("the second");
  await page.getByText("the second").waitFor();
  env.run("run", "end", run.run_id, "--status", "completed");
  await page.locator(".state.good").first().waitFor();
  assert.ok(await page.locator(".timeline details").evaluate((details) => details.open));
  assert.equal(await page.locator(".timeline pre").evaluate((pre) => pre.scrollTop), 200);
  assert.equal(await page.evaluate("document.activeElement.href"), focused);
  assert.equal(await page.locator("main[data-live]").count(), 0);
  assert.deepEqual(page.trouble, []);
  await env.close();
});

test("a hidden page catches up when it becomes visible", async () => {
  const { env, run, step, page } = await openLivePage();
  const hide = (hidden) => page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  // The page receives the event of the step, and is hidden before it has reloaded.
  await page.evaluate(() => new Promise((opened) => {
    const stream = new EventSource("/live");
    stream.addEventListener("change", (event) => {
      if (!JSON.parse(event.data).events.length) return opened();
      stream.close();
      window.eventReceived();
    });
    window.untilEvent = new Promise((done) => { window.eventReceived = done; });
  }));
  step("unseen");
  await page.evaluate("window.untilEvent");
  await hide(true);
  env.run("run", "end", run.run_id, "--status", "failed", "--error", "broken");
  await hide(false);
  await page.getByText("unseen").waitFor();
  await page.locator(".state.bad").first().waitFor();
  await env.close();
});

test("the page of a run reloads only for events of the run", async () => {
  const { env, run, step, page } = await openLivePage();
  for (const title of ["one", "two", "three"]) env.run("note", "create", "--studio", "main", "--title", title);
  const other = env.run("run", "start", "--agent", "ada");
  env.runAs(other.token, "run", "step", other.run_id, "--type", "shell", "--detail", "elsewhere");
  // Once the page shows its own step, it has also received all earlier events.
  step("its own");
  await page.getByText("its own").waitFor();
  assert.equal(page.reloads, 1);
  env.runAs(run.token, "note", "create", "--studio", "main", "--title", "made here");
  await page.getByText("made here").waitFor();
  await env.close();
});

test("pages of conversations, tasks, agents and decisions update live", async () => {
  const { env, run, page } = await openLivePage();
  const conversation = env.run("conversation", "create", "--title", "Trouble");
  await page.goto(`${env.address}/conversations/${conversation.id}`);
  await untilLive(page);
  await page.getByRole("textbox", { name: "Reply", exact: true }).fill("half a sentence");
  env.run("message", "send", "--body", "it broke", "--conversation", conversation.id);
  await page.locator(".thread", { hasText: "it broke" }).waitFor();
  assert.equal(await page.getByRole("textbox", { name: "Reply", exact: true }).inputValue(), "half a sentence");
  await page.getByRole("button", { name: "Send" }).click();
  await page.locator(".thread li:nth-child(2)", { hasText: "half a sentence" }).waitFor();

  await page.goto(`${env.address}/tasks/unit/go`);
  await untilLive(page);
  env.runAs(run.token, "report", "update", "--one-liner", "half done", "--tldr", "t", "--content", "c");
  await page.getByRole("link", { name: "half done" }).waitFor();

  await page.goto(`${env.address}/agents/ada`);
  await untilLive(page);
  env.runAs(run.token, "scratchpad", "update", "--content", "tests need redis");
  await page.locator(".prose", { hasText: "tests need redis" }).waitFor();

  const decision = env.run("decision", "create", "--studio", "main", "--question", "Which?", "--option", "a", "--option", "b");
  await page.goto(`${env.address}/decisions/${decision.id}`);
  await untilLive(page);
  env.run("decision", "vote", decision.id, "--option", "a", "--prefer");
  await page.locator(".bars li", { hasText: "preferred by 1" }).waitFor();
  assert.deepEqual(page.trouble, []);
  await env.close();
});

test("a form in use is not updated until the reader leaves it", async () => {
  const { env, run, page } = await openLivePage(() => "/agents/ada");
  const summary = page.locator("summary", { hasText: "set scratchpad" });
  await summary.click();
  const content = page.locator("form[action$='/set_scratchpad'] [name=content]");
  await content.fill("mine");
  env.runAs(run.token, "scratchpad", "update", "--content", "theirs");
  await page.locator(".prose", { hasText: "theirs" }).waitFor();
  assert.equal(await content.inputValue(), "mine");
  await content.fill("");
  await summary.click();
  await page.waitForFunction(() => document.querySelector("form[action$='/set_scratchpad'] [name=content]").defaultValue === "theirs");
  await env.close();
});
