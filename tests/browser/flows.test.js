// User flows in a real browser.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, test } from "node:test";

import { TestServer, browser } from "./test_server.js";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

after(() => browser.close());

/** Starts a server with one of every kind of thing that has pages. */
async function serverWithData() {
  const env = await TestServer.open();
  env.run("role", "set", "--name", "coder");
  env.run("workflow", "set", "--name", "checkout");
  env.run("task", "set", "--workflow", "checkout", "--variant", "fix/login", "--title", "Fix the login", "--description", "Users land on **/home**.");
  env.run("task", "set", "--workflow", "checkout", "--variant", "fix/login-2", "--replaces", "fix/login", "--level", "minor");
  env.run("agent", "set", "--handle", "coder", "--role", "coder");
  const run = env.run("run", "start", "--agent", "coder", "--task", "fix/login-2");
  env.runAs(run.token, "scratchpad", "update", "--content", "# Learned\n- tests need redis");
  const note = env.runAs(run.token, "note", "create", "--studio", "main", "--title", "<img src=x onerror=alert(1)> | [x](javascript:alert(1))", "--body", "See <script>alert(1)</script> [here](javascript:alert(2)) ![p](http://evil.example/p.png)");
  const decision = env.runAs(run.token, "decision", "create", "--studio", "main", "--question", "Which store?", "--option", "redis", "--option", "postgres");
  env.runAs(run.token, "message", "send", "--body", "The build is broken since the redirect", "--title", "Build");
  env.runAs(run.token, "run", "usage", run.run_id, "--model", "m", "--input-tokens", "1200", "--output-tokens", "30");
  env.runAs(run.token, "run", "wake", run.run_id);
  env.runAs(run.token, "report", "update", "--one-liner", "<b>half</b> done", "--tldr", "# Half\n\nThe rest is <i>hard</i>.", "--content", "All of it.");
  const talk = env.run("conversation", "create", "--title", "Trouble");
  env.run("message", "send", "--body", "<script>alert(1)</script> ".repeat(20), "--conversation", talk.id);
  env.run("queue", "add", "--task", "fix/login");
  env.run("board", "set", "--name", "release");
  env.run("stickie", "set", "--board", "release", "--name", "one", "--priority", "must", "--note", "a **note**");
  return Object.assign(env, { worked: run, note, decision, talk });
}

/** The paths of all pages of such a server. */
const pages = (env) => [
  "/", "/runs", `/runs/${env.worked.run_id}`, "/tasks", "/tasks/fix/login-2", "/queue", "/agents", "/agents/coder",
  "/sessions", "/conversations", "/messages", "/search?words=redirect", "/decisions", `/decisions/${env.decision.id}`,
  "/notes", `/notes/${env.note.id}`, "/why", `/why?of=${env.note.id}`, "/ready", "/made?run=last", "/usage", "/events", "/api", "/whoami",
  "/boards", "/boards/release", "/reports", "/reports/fix/login-2", `/conversations/${env.talk.id}`, "/studios/main",
  "/workflows/checkout", "/search", "/whoami/actions/create_note", "/nothing",
];

test("every page is accessible in all colour schemes and widths, and runs no scripts of users", async () => {
  const env = await serverWithData();
  for (const look of [
    { colorScheme: "light" },
    { colorScheme: "dark" },
    { colorScheme: "light", viewport: { width: 390, height: 800 } },
  ]) {
    const page = await env.visit("/", look);
    for (const path of pages(env)) {
      const answer = await page.goto(env.address + path);
      assert.ok([200, 404].includes(answer.status()), `${path}: ${answer.status()}`);
      assert.ok((await answer.body()).length < 100_000, `${path} is large`);
      await page.evaluate(axe);
      const { violations } = await page.evaluate("axe.run()");
      assert.deepEqual(violations.map((found) => [found.id, found.nodes[0].html]), [], `${path} ${JSON.stringify(look)}`);
      const overflow = await page.evaluate("document.documentElement.scrollWidth - innerWidth");
      assert.ok(overflow <= 0, `${path} is ${overflow} wider than the screen`);
    }
    assert.deepEqual(page.trouble, []);
    await page.context().close();
  }
  assert.equal(await env.close(), 0);
});

test("a login link works once, and pages require a login", async () => {
  const env = await TestServer.open();
  const link = env.link;
  const page = await env.visit("/whoami");
  assert.match(await page.textContent("h1"), /^You are /);
  const stranger = await browser.newContext();
  const other = await stranger.newPage();
  assert.equal((await other.goto(link)).status(), 401);
  const refused = await other.goto(env.address + "/runs");
  assert.equal(refused.status(), 401);
  assert.match(await other.textContent("main"), /trackway open/);
  const [cookie] = await page.context().cookies();
  assert.deepEqual([cookie.name, cookie.httpOnly, cookie.sameSite], [`trackway_${env.address.split(":").pop()}`, true, "Strict"]);
  await stranger.close();
  await env.close();
});

test("the page of a run updates while the run works", async () => {
  const env = await serverWithData();
  const page = await env.visit(`/runs/${env.worked.run_id}`);
  assert.equal(await page.locator(".state").first().textContent(), "running");
  await page.waitForFunction(() => document.documentElement.dataset.isLive);
  env.runAs(env.worked.token, "run", "step", env.worked.run_id, "--type", "fetch_page", "--detail", "reading the queue");
  await page.getByText("reading the queue").waitFor({ timeout: 10_000 });
  env.run("run", "end", env.worked.run_id, "--status", "completed");
  await page.locator(".state.good").first().waitFor({ timeout: 10_000 });
  assert.deepEqual(page.trouble, []);
  await env.close();
});

test("provenance links lead from a file to the person who requested it", async () => {
  const env = await TestServer.open();
  const session = { session_id: "0a6c1f5e-6f0e-4a51-9d0a-3c0f6c1f9b11", cwd: env.directory, transcript_path: `${env.directory}/none.jsonl` };
  env.hook({ ...session, hook_event_name: "SessionStart", source: "startup" });
  env.hook({ ...session, hook_event_name: "UserPromptSubmit", prompt: "write the readme" });
  const input = { file_path: `${env.directory}/README.md`, content: "hello\n" };
  env.hook({ ...session, hook_event_name: "PostToolUse", tool_name: "Write", tool_use_id: "toolu_1", tool_input: input, tool_response: { type: "create", filePath: input.file_path } });
  const page = await env.visit("/why");
  await page.getByLabel("A file, a line").fill(input.file_path);
  await page.getByRole("button", { name: "Show" }).click();
  const kinds = await page.locator(".chain li > span").allTextContents();
  assert.equal(kinds[0], "resource");
  assert.ok(kinds.includes("run") && kinds.at(-1) === "person", kinds.join());
  await page.locator(".chain li", { hasText: "run" }).first().getByRole("link").click();
  await page.getByRole("link", { name: /README\.md/ }).waitFor();
  await page.goBack();
  await page.locator(".chain li").last().getByRole("link").click();
  assert.match(page.url(), /\/people\//);
  await env.close();
});

for (const javaScriptEnabled of [true, false]) {
  test(`forms for votes and scratchpads work ${javaScriptEnabled ? "with" : "without"} JavaScript`, async () => {
    const env = await serverWithData();
    const page = await env.visit(`/decisions/${env.decision.id}`, { javaScriptEnabled });
    await page.locator("summary", { hasText: "vote" }).click();
    const vote = page.locator("form[action$='/vote']");
    await vote.getByLabel("redis").check();
    await vote.locator("[name=accept]").check();
    await vote.locator("[name=prefer]").check();
    await vote.getByRole("button", { name: "Vote" }).click();
    assert.match(await page.locator(".bars li").first().textContent(), /redis.*accepted by 1, preferred by 1/);

    await page.goto(`${env.address}/agents/coder`);
    await page.locator("summary", { hasText: "set scratchpad" }).click();
    const pad = page.locator("form[action$='/set_scratchpad']");
    assert.equal(await pad.locator("[name=content]").inputValue(), "# Learned\n- tests need redis");
    await pad.locator("[name=content]").fill("tests need redis 7");
    await pad.getByRole("button").click();
    assert.match(await page.locator(".prose").first().textContent(), /redis 7/);
    assert.match(await page.locator(".diff").textContent(), /\+tests need redis 7/);

    // Another change came first, so nothing is overwritten.
    await page.locator("summary", { hasText: "set scratchpad" }).click();
    env.runAs(env.worked.token, "scratchpad", "update", "--content", "mine");
    await pad.locator("[name=content]").fill("late");
    await pad.getByRole("button").click();
    assert.match(await page.textContent("h1"), /^409/);
    assert.equal(env.run("scratchpad", "get", "--agent", "coder").content, "mine");
    await env.close();
  });
}

test("stickies can be moved by dragging and by keyboard, and relations are drawn", async () => {
  const env = await TestServer.open();
  env.run("board", "set", "--name", "release");
  for (const [name, priority] of [["cookies", "must"], ["docs", "could"]]) {
    env.run("stickie", "set", "--board", "release", "--name", name, "--priority", priority, "--note", "about <b>it</b>");
  }
  env.run("stickie", "relate", "--from", "cookies", "--to", "docs", "--type", "CAUSES");
  const page = await env.visit("/boards/release");
  assert.equal(await page.locator("[data-board] > svg > path").count(), 1);
  await page.locator(".card", { hasText: "docs" }).dragTo(page.locator(".column[data-priority=should] ul"));
  await page.locator(".column[data-priority=should] .card", { hasText: "docs" }).waitFor();
  const priority = (name) => env.run("stickie", "list", "--board", "release").find((stickie) => stickie.name === name).priority;
  assert.equal(priority("docs"), "should");

  const choice = page.getByLabel("Priority of cookies");
  await choice.focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.locator(".column[data-priority=should] .card", { hasText: "cookies" }).waitFor();
  assert.equal(priority("cookies"), "should");
  assert.equal(new URL(page.url()).pathname, "/boards/release");

  // A priority can be removed by dragging, with the form, and with the keyboard alone.
  await page.locator(".card", { hasText: "docs" }).dragTo(page.locator(".column[data-priority=''] ul"));
  await page.locator(".column[data-priority=''] .card", { hasText: "docs" }).waitFor();
  assert.equal(priority("docs"), null);
  assert.equal(await page.getByLabel("Priority of docs").inputValue(), "");
  for (const word of ["must", ""]) {
    // Focus keeps the page from updating the form while the test uses it.
    await page.getByLabel("Priority of docs").focus();
    await page.getByLabel("Priority of docs").selectOption(word);
    await page.locator(".card", { hasText: "docs" }).getByRole("button").click();
    await page.locator(`.column[data-priority='${word}'] .card`, { hasText: "docs" }).waitFor();
    assert.equal(priority("docs"), word || null);
  }
  await page.getByLabel("Priority of cookies").focus();
  await page.keyboard.press("End");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.locator(".column[data-priority=''] .card", { hasText: "cookies" }).waitFor();
  assert.equal(priority("cookies"), null);

  await page.locator("summary", { hasText: "set stickie" }).click();
  const form = page.locator("form[action$='/set_stickie']");
  await form.locator("[name=name]").fill("themes");
  await form.locator("[name=priority]").selectOption("wont");
  await form.getByRole("button").click();
  await page.locator(".column[data-priority=wont] .card", { hasText: "themes" }).waitFor();
  assert.deepEqual(page.trouble, []);
  await env.close();
});

test("a large board shows a part of each column, and a moved stickie stays visible", async () => {
  const env = await TestServer.open();
  env.run("board", "set", "--name", "release");
  for (let number = 0; number < 52; number++) {
    env.run("stickie", "set", "--board", "release", "--name", `thought ${number}`, "--priority", number % 2 ? "should" : "must");
  }
  const page = await env.visit("/boards/release");
  const column = (word) => page.locator(`.column[data-priority="${word}"]`);
  assert.equal(await column("must").locator(".card").count(), 10);
  const moved = page.locator(".card", { hasText: "thought 32" });
  // Drops at the top of the column. Otherwise the page would scroll under the pointer and drop another stickie.
  await moved.dragTo(column("should").locator("h2"));
  await column("should").locator("h2", { hasText: "27" }).waitFor();
  assert.equal(await column("should").locator(".card", { hasText: "thought 32" }).count(), 1);
  assert.equal(await column("should").locator(".card").count(), 10);
  await column("must").getByText("all 25").click();
  assert.equal(await page.locator(".card").count(), 25);
  await page.getByLabel("Priority of thought 0").selectOption("could");
  await page.locator(".card", { hasText: "thought 0" }).getByText("Move").click();
  await column("could").locator(".card", { hasText: "thought 0" }).waitFor();
  assert.equal(env.run("stickie", "list", "--board", "release", "--priority", "could")[0].name, "thought 0");
  assert.deepEqual(page.trouble, []);
  await page.context().close();
  assert.equal(await env.close(), 0);
});

test("pages can be used with the keyboard alone", async () => {
  const env = await serverWithData();
  const page = await env.visit("/");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate("document.activeElement.textContent"), "Skip to content");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  assert.ok(await page.evaluate("document.querySelector('main').contains(document.activeElement)"));
  await page.keyboard.press("g");
  await page.keyboard.press("d");
  await page.waitForURL("**/decisions");
  await page.keyboard.press("/");
  await page.keyboard.type("redirect");
  await page.keyboard.press("Enter");
  await page.waitForURL("**/search?words=redirect");
  const hit = page.locator("tbody a").first();
  await hit.focus();
  await page.keyboard.press("Enter");
  await page.waitForURL("**/messages/**");
  assert.deepEqual(page.trouble, []);
  await env.close();
});
