// What the pages do beyond HTML: plots of the tables that stand on them, and loading themselves again. Without it every figure is there still.
'use strict';

// Plots: a table with `data-plot` is drawn above itself. Its first column is the time (`data-t`, seconds of local time), those with
// `data-plot="bar"` are stacked, the one with `data-plot="line"` is drawn below. Figures are read from the cells (`data-v`).
function read(table) {
  const heads = [...table.tHead.rows[0].cells];
  const rows = [...table.tBodies[0].rows].filter((row) => row.cells[0].dataset.t !== undefined);
  const column = (at) => rows.map((row) => (row.cells[at].dataset.v === undefined ? null : Number(row.cells[at].dataset.v)));
  const pick = (kind) => heads.flatMap((head, at) => (head.dataset.plot === kind ? [{ name: head.textContent, values: column(at) }] : []));
  return { times: rows.map((row) => Number(row.cells[0].dataset.t)), bars: pick('bar'), lines: pick('line') };
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// The times are local already: they are written as they are.
function time(at) {
  return new Date(at * 1000).toISOString().slice(0, 16).split('T');
}

function axes(unit) {
  const look = { stroke: colour('--quiet'), grid: { stroke: colour('--line'), width: 1 }, ticks: { stroke: colour('--line') } };
  const times = (_, ticks) => ticks.map((tick, at) => {
    const [day, hour] = time(tick);
    if (hour === '00:00') return day;
    return at === 0 ? `${hour}\n${day}` : hour;
  });
  const figures = (_, ticks) => ticks.map((tick) => `${tick.toLocaleString('en-US')} ${unit}`);
  return [{ ...look, space: 80, values: times }, { ...look, size: 80, values: figures }];
}

function options(width, height, unit, series, times, range) {
  const step = times[1] - times[0];
  const named = (_, at) => (at === null || at === undefined ? '--' : time(at).join(' '));
  return {
    width, height, series: [{ label: 'Time', value: named }, ...series], axes: axes(unit),
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), 'Etc/UTC'),
    cursor: { sync: { key: 'money' }, points: { show: false }, drag: { x: false, y: false } },
    scales: { x: { range: () => [times[0], times[times.length - 1] + step] }, y: { range } },
  };
}

function draw(table, place) {
  const { times, bars, lines } = read(table);
  if (times.length < 2) return [];
  const width = Math.max(280, place.clientWidth);
  // Of each column the sum of it and of those after it: the first is drawn first and highest, the others over it.
  const stacked = bars.map((_, at) => times.map((_, row) => bars.slice(at).reduce((sum, bar) => sum + (bar.values[row] ?? 0), 0)));
  const paths = uPlot.paths.bars({ size: [0.8, 64], align: 1 });
  const series = bars.map((bar, at) => ({
    label: bar.name, fill: colour(`--c${at % 7}`), stroke: colour(`--c${at % 7}`), width: 0, paths, points: { show: false },
    value: (_u, _v, _s, row) => (row === null || row === undefined ? '--' : `${(bar.values[row] ?? 0).toLocaleString('en-US', { minimumFractionDigits: 2 })} USD`),
  }));
  const plots = [new uPlot(options(width, 260, 'USD', series, times, (_, _low, high) => [0, Math.max(high * 1.05, 0.01)]), [times, ...stacked], place)];
  for (const line of lines) {
    const one = { label: line.name, stroke: colour('--accent'), width: 2, value: (_, v) => (v === null || v === undefined ? '--' : `${v} %`) };
    plots.push(new uPlot(options(width, 140, '%', [one], times, () => [0, 100]), [times, line.values], place));
  }
  return plots;
}

for (const table of document.querySelectorAll('table[data-plot]')) {
  const place = document.createElement('div');
  place.className = 'plot';
  place.setAttribute('aria-hidden', 'true'); // The table below says it all.
  (table.closest('details') ?? table.closest('section')).before(place);
  let plots = draw(table, place);
  const again = () => {
    plots.forEach((plot) => plot.destroy());
    plots = draw(table, place);
  };
  let waiting = 0;
  addEventListener('resize', () => { clearTimeout(waiting); waiting = setTimeout(again, 100); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', again);
}

// Loading again, where the page asks for it: until the box is unticked, and never under somebody's hands. First it asks by a style, which is what a
// page may load from here, whether anybody answers: a browser's own page of an error would not try again.
const seconds = Number(document.body.dataset.reload);
if (seconds > 0) {
  const box = document.createElement('input');
  box.type = 'checkbox';
  const remembered = () => { try { return localStorage.getItem('forebay-reload') !== 'off'; } catch { return true; } };
  box.checked = remembered();
  box.addEventListener('change', () => {
    try { localStorage.setItem('forebay-reload', box.checked ? 'on' : 'off'); } catch { /* It holds for this page then. */ }
  });
  const label = document.createElement('label');
  label.className = 'reload';
  label.style.display = 'block';
  label.append(box, ` load again every ${seconds} s`);
  document.querySelector('header').append(label);
  // A table has the focus where somebody clicks into it, and is under nobody's hands.
  const may = () => {
    const busy = document.activeElement !== box && document.activeElement?.matches('input, select, textarea, button, a');
    return box.checked && !busy && String(getSelection()) === '' && document.visibilityState === 'visible';
  };
  const line = document.createElement('p');
  line.className = 'alert';
  line.setAttribute('role', 'alert');
  const silent = () => {
    if (line.isConnected) return;
    document.querySelector('main').prepend(line);
    line.textContent = `No answer since ${new Date().toISOString().slice(11, 19)} UTC, trying again.`;
  };
  let asking = null;
  setInterval(() => {
    if (asking) silent();
    asking?.remove();
    asking = null;
    if (!may()) return;
    const probe = document.createElement('link');
    probe.rel = 'stylesheet';
    probe.href = `/assets/alive.css?at=${Date.now()}`;
    const answered = (is) => {
      if (asking !== probe) return;
      probe.remove();
      asking = null;
      if (!is) silent();
      else if (may()) location.reload();
      else line.remove();
    };
    probe.addEventListener('load', () => answered(true));
    probe.addEventListener('error', () => answered(false));
    asking = probe;
    document.head.append(probe);
  }, seconds * 1000);
}
