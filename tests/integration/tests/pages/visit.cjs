// Visits pages in Chromium and prints what it saw, as JSON. Its argument: {url, token, shots, visits: [{name, path, width, dark, script, press, again}]}.
//
// Never: judges. The test that starts it does.
'use strict';

const fs = require('fs');
const { chromium } = require('playwright-core');

const AXE = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
// Without these Chromium asks its makers for updates, and waits.
const QUIET = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

// What stands on the page: tiles by name, and tables by caption, cell by cell.
function read() {
  const text = (element) => element.textContent.trim();
  const tiles = {};
  for (const tile of document.querySelectorAll('dl > div')) tiles[text(tile.querySelector('dt'))] = text(tile.querySelector('dd').firstChild);
  const tables = {};
  for (const table of document.querySelectorAll('table[role="table"]')) {
    const rows = [...table.tBodies[0].rows, ...(table.tFoot?.rows ?? [])];
    tables[text(table.caption.firstChild)] = rows.map((row) => [...row.cells].map((cell) => ({ text: text(cell), link: cell.querySelector('a')?.getAttribute('href') ?? null })));
  }
  return {
    title: document.title, tiles, tables, alert: document.querySelector('[role=alert]')?.textContent ?? null,
    // Pages have none of their own.
    pictures: document.querySelectorAll('img').length,
    plots: document.querySelectorAll('canvas').length, wider: document.documentElement.scrollWidth - innerWidth,
  };
}

// Whether anything is drawn: some point of the plot that is not as the corner is.
function drawn() {
  return [...document.querySelectorAll('canvas')].map((canvas) => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    const colours = new Set();
    for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255) colours.add(`${data[at]},${data[at + 1]},${data[at + 2]}`);
    return colours.size;
  });
}

// What a page does that loads itself: after a click into a table, and while nobody answers.
async function loads(page) {
  const soon = { timeout: 120_000 };
  const again = () => page.waitForEvent('load', soon).then(() => true, () => false);
  // From here on it is as long as it can be until the next time.
  const by_itself = await again();
  await page.click('table caption');
  const focus = await page.evaluate(() => document.activeElement.tagName);
  const clicked = await again();
  await page.route('**/*', (route) => route.abort());
  const alert = await page.waitForSelector('main > [role=alert]', soon).then((line) => line.textContent(), () => null);
  await page.unroute('**/*');
  return { by_itself, focus, clicked, alert, answered: await again() };
}

async function visit(browser, { url, token, shots }, { name, path, width, dark, script, press, again = false }) {
  const context = await browser.newContext({
    viewport: { width, height: 900 }, colorScheme: dark ? 'dark' : 'light', javaScriptEnabled: script,
    ...(token ? { httpCredentials: { username: 'forebay', password: token, send: 'always' } } : {}),
  });
  // Its own limit is its starter's.
  context.setDefaultTimeout(0);
  const page = await context.newPage();
  // Nothing moves while it is looked at.
  if (!again) await page.addInitScript(() => { try { localStorage.setItem('forebay-reload', 'off'); } catch { /* A page without storage. */ } });
  const said = [];
  page.on('console', (message) => said.push(`${message.type()}: ${message.text()}`));
  page.on('pageerror', (error) => said.push(`error: ${error.message}`));
  page.on('dialog', (dialog) => { said.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  const answer = await page.goto(url + path, { waitUntil: 'load', timeout: 0 });
  const seen = { name, status: answer.status(), ...(await page.evaluate(read)) };
  await page.screenshot({ path: `${shots}/${name}.png`, fullPage: true });
  if (again) seen.again = await loads(page);
  if (script && !again) {
    seen.drawn = await page.evaluate(drawn);
    seen.focus = [];
    for (let at = 0; at < press; at += 1) {
      await page.keyboard.press('Tab');
      seen.focus.push(await page.evaluate(() => {
        const at = document.activeElement;
        return at.getAttribute('href') ?? at.getAttribute('name') ?? at.getAttribute('aria-label') ?? at.textContent.trim();
      }));
    }
    // What is said from here on is the visitor's own doing.
    seen.said = [...said];
    // A page may load nothing by itself and send nothing but a form: a script of somebody else's could not write either.
    seen.writes = await page.evaluate(() => fetch('/v1/events', { method: 'POST', body: '{}' }).then((got) => got.status, () => 'refused'));
    await page.evaluate(AXE);
    const found = await page.evaluate(() => axe.run());
    seen.barriers = found.violations.map((rule) => `${rule.id} ${rule.nodes.length}x: ${rule.nodes[0].html.slice(0, 200)}: ${rule.nodes[0].failureSummary}`);
    seen.rules = found.passes.length;
  }
  await context.close();
  return seen;
}

(async () => {
  const asked = JSON.parse(process.argv[2]);
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: QUIET, timeout: 0 });
  const seen = [];
  for (const one of asked.visits) seen.push(await visit(browser, asked, one));
  await browser.close();
  process.stdout.write(JSON.stringify(seen));
})();
