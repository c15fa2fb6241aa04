// Makes the pictures of the documentation: node screenshots.js DIRECTORY

import { join } from "node:path";

import { House, browser } from "./house.js";

const into = process.argv[2] ?? "../../docs/pictures";
const house = await House.open();
const set = (noun, ...words) => house.run(noun, "set", ...words);
set("role", "--name", "coder");
set("role", "--name", "reviewer");
set("workflow", "--name", "checkout");
const task = (variant, title, script, ...words) =>
  set("task", "--workflow", "checkout", "--variant", variant, "--title", title, "--script", script, "--recurring", "true", ...words);
task("fix/login", "Fix the login redirect", "test $((TRACKWAY_ATTEMPT % 2)) = 0");
task("fix/login-tested", "Fix the login redirect, with a test", "echo fixed", "--replaces", "fix/login", "--level", "minor", "--description", "Users land on **/home** instead of where they came from.");
task("fix/login-cookies", "Fix the login redirect and the cookies", "echo fixed", "--replaces", "fix/login-tested", "--level", "major");
task("review/login", "Review the login fix", "exit 3");
house.run("link", "add", "--from", "fix/login-cookies", "--to", "review/login", "--type", "blocks");
for (const [handle, role] of [["ada", "coder"], ["bob", "reviewer"]]) set("agent", "--handle", handle, "--role", role, "--model", "claude-sonnet-4");
for (const variant of ["fix/login", "fix/login-tested", "fix/login-tested", "fix/login-cookies", "fix/login-cookies", "review/login"]) {
  house.run("queue", "add", "--task", variant, "--max-attempts", "1");
}
house.run("work", "--once");
house.run("queue", "add", "--task", "fix/login-tested");
const run = house.run("run", "start", "--agent", "ada", "--task", "fix/login-cookies");
const act = (...words) => house.runAs(run.token, ...words);
act("note", "create", "--studio", "main", "--title", "Cookies are SameSite=Lax", "--body", "They have to be **Strict**.");
act("report", "update", "--one-liner", "Redirect fixed, cookies next", "--tldr", "The redirect works; cookies are next.", "--content", "...");
act("run", "usage", run.run_id, "--model", "claude-sonnet-4", "--input-tokens", "18200", "--output-tokens", "2340", "--cost", "0.09");
house.run("run", "start", "--agent", "bob", "--task", "review/login");

const page = await house.visit("/", { viewport: { width: 1120, height: 700 }, deviceScaleFactor: 1.5 });
for (const [name, path] of [["overview", "/"], ["task", "/tasks/fix/login-cookies"]]) {
  await page.goto(house.address + path);
  await page.waitForTimeout(300);
  await page.screenshot({ path: join(into, `${name}.png`) });
}
await house.close();
await browser.close();
