// A separate Trackway for each test: a database, a server and a logged-in browser.

import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { chromium } from "playwright-core";

const program = process.env.TRACKWAY_PROGRAM;
const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";

export const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });

export class TestServer {
  static async open() {
    const env = new TestServer();
    env.directory = mkdtempSync(join(tmpdir(), "trackway-browser."));
    env.environment = { ...process.env, HOME: env.directory, TRACKWAY_DB: `sqlite:${join(env.directory, "t.db")}` };
    delete env.environment.TRACKWAY_TOKEN;
    env.run("init");
    env.server = spawn(program, ["up", "--no-work", "--listen", "127.0.0.1:0"], { env: env.environment });
    for await (const line of createInterface({ input: env.server.stdout })) {
      env.address ??= line.match(/http:\/\/[0-9.:]+/)?.[0];
      env.link = line.match(/http:\S+code=\S+/)?.[0];
      if (env.link) break;
    }
    return env;
  }

  /** Runs a command and returns its data. */
  run(...words) {
    return this.runAs(undefined, ...words);
  }

  runAs(token, ...words) {
    const env = token ? { ...this.environment, TRACKWAY_TOKEN: token } : this.environment;
    const text = execFileSync(program, [...words, "--json"], { env, cwd: this.directory, encoding: "utf8" });
    return text ? JSON.parse(text).data : undefined;
  }

  hook(event) {
    execFileSync(program, ["hook"], { env: this.environment, cwd: this.directory, input: JSON.stringify(event) });
  }

  /** Opens a page with a logged-in browser. `page.trouble` collects script errors, dialogs and requests to other hosts. */
  async visit(path = "/", options = {}) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
    // The first event of a stream says that the stream is open. From then on the page is live.
    await context.addInitScript(() => {
      window.EventSource = class extends EventSource {
        constructor(url) {
          super(url);
          this.addEventListener("change", () => { document.documentElement.dataset.isLive = "yes"; }, { once: true });
        }
      };
    });
    const page = await context.newPage();
    page.trouble = [];
    page.on("pageerror", (error) => page.trouble.push(error.message));
    page.on("dialog", (dialog) => { page.trouble.push(`dialog ${dialog.message()}`); dialog.dismiss(); });
    page.on("request", (request) => {
      if (!request.url().startsWith(this.address)) page.trouble.push(`request to ${request.url()}`);
    });
    const port = this.address.split(":").pop();
    const link = this.link ?? this.run("open", "--listen", `127.0.0.1:${port}`).url;
    this.link = undefined;
    await page.goto(`${link}&to=${encodeURIComponent(path)}`);
    return page;
  }

  async close() {
    const ended = new Promise((done) => this.server.once("exit", done));
    this.server.kill("SIGTERM");
    const code = await ended;
    rmSync(this.directory, { recursive: true, force: true });
    return code;
  }
}
