// Takes the screenshots for the documentation: node screenshots.js DIRECTORY

import { join } from "node:path";

import { TestServer, browser } from "./test_server.js";

const into = process.argv[2] ?? "../../docs/pictures";
const env = await TestServer.open();
const set = (noun, ...words) => env.run(noun, "set", ...words);
set("role", "--name", "coder");
set("role", "--name", "reviewer");
set("workflow", "--name", "checkout");
const task = (variant, title, script, ...words) =>
  set("task", "--workflow", "checkout", "--variant", variant, "--title", title, "--script", script, "--recurring", "true", ...words);
task("fix/login", "Fix the login redirect", "test $((TRACKWAY_ATTEMPT % 2)) = 0");
task("fix/login-tested", "Fix the login redirect, with a test", "echo fixed", "--replaces", "fix/login", "--level", "minor", "--description", "Users land on **/home** instead of where they came from.");
task("fix/login-cookies", "Fix the login redirect and the cookies", "echo fixed", "--replaces", "fix/login-tested", "--level", "major");
task("review/login", "Review the login fix", "exit 3");
env.run("link", "add", "--from", "fix/login-cookies", "--to", "review/login", "--type", "blocks");
for (const [handle, role] of [["ada", "coder"], ["bob", "reviewer"]]) set("agent", "--handle", handle, "--role", role, "--model", "claude-sonnet-4");
for (const variant of ["fix/login", "fix/login-tested", "fix/login-tested", "fix/login-cookies", "fix/login-cookies", "review/login"]) {
  env.run("queue", "add", "--task", variant, "--max-attempts", "1");
}
env.run("work", "--once");
env.run("queue", "add", "--task", "fix/login-tested");
const run = env.run("run", "start", "--agent", "ada", "--task", "fix/login-cookies");
const act = (...words) => env.runAs(run.token, ...words);
act("note", "create", "--studio", "main", "--title", "Cookies are SameSite=Lax", "--body", "They have to be **Strict**.");
act("report", "update", "--one-liner", "Redirect fixed, cookies next", "--tldr", "The redirect works; cookies are next.", "--content", "...");
act("run", "usage", run.run_id, "--model", "claude-sonnet-4", "--input-tokens", "18200", "--output-tokens", "2340", "--cost", "0.09");
env.run("run", "start", "--agent", "bob", "--task", "review/login");

const page = await env.visit("/", { viewport: { width: 1120, height: 700 }, deviceScaleFactor: 1.5 });
for (const [name, path] of [["overview", "/"], ["task", "/tasks/fix/login-cookies"]]) {
  await page.goto(env.address + path);
  await page.waitForTimeout(300);
  await page.screenshot({ path: join(into, `${name}.png`) });
}
await env.close();
await browser.close();
