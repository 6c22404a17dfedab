// The timeline of a trace. The functions above start() do not use the page, so tests can run them.
"use strict";

const FONT = "11px sans-serif";

// Decode the columns that page.py wrote: base64 of little-endian arrays.
function decode(columns) {
  const kinds = { f8: Float64Array, f4: Float32Array, i4: Int32Array, u4: Uint32Array,
                  u2: Uint16Array };
  const arrays = {};
  for (const [name, [kind, text]] of Object.entries(columns)) {
    const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
    arrays[name] = new kinds[kind](bytes.buffer);
  }
  return arrays;
}

// Return the first index in [low, high) whose value is at least `value`; `high` if there is none.
function lowerBound(array, value, low, high) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (array[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Return the rectangles of one lane: [item, x, width, items]. The items of a lane do not overlap and
// are ordered, so at most two rectangles begin in each pixel column: one for the items in the column,
// which `items` counts, and one for the item that extends beyond it.
function rectangles(items, first, end, view, width) {
  const scale = width / (view.end - view.begin);
  const found = [];
  let at = lowerBound(items.end, view.begin, first, end);
  while (at < end && items.start[at] < view.end) {
    const x = Math.max((items.start[at] - view.begin) * scale, 0);
    const right = Math.min((items.end[at] - view.begin) * scale, width);
    let next = at + 1;
    if (right - x < 1) {
      const column = view.begin + (Math.floor(x) + 1) / scale;
      next = Math.max(next, lowerBound(items.start, column, at, end));
      if (next - 1 > at && items.end[next - 1] > column) --next;
    }
    found.push([at, x, Math.max(right - x, 1), next - at]);
    at = next;
  }
  return found;
}

// Return the largest value of a counter in each pixel column: [column, value]. A counter keeps the
// value values[i] from times[i] on.
function columns(counter, view, width) {
  const found = [];
  const step = (view.end - view.begin) / width;
  let at = lowerBound(counter.times, view.begin, 0, counter.times.length) - 1;
  for (let column = 0; column < width; ++column) {
    const end = view.begin + (column + 1) * step;
    let most = at < 0 ? 0 : counter.values[at];
    for (; at + 1 < counter.times.length && counter.times[at + 1] < end; ++at) {
      most = Math.max(most, counter.values[at + 1]);
    }
    if (most > 0) found.push([column, most]);
  }
  return found;
}

// Return the counter that rises at each time of `begins` and falls at each time of `ends`.
function counterOf(name, begins, ends) {
  begins.sort();
  ends.sort();
  const times = new Float64Array(2 * begins.length), values = new Float64Array(2 * begins.length);
  for (let i = 0, b = 0, e = 0; i < times.length; ++i) {
    if (b < begins.length && begins[b] < ends[e]) times[i] = begins[b++];
    else times[i] = ends[e++];
    values[i] = b - e;
  }
  return { name, times, values };
}

// Return the counters of the page: ready tasks, busy cores, live tasks, and the use of the rings.
function counters(data, items, tasks, itemOfTask) {
  const known = (test) => [...tasks.task.keys()].filter((row) => itemOfTask[row] >= 0 && test(row));
  const times = (rows, time) => Float64Array.from(rows, time);
  const start = (row) => items.start[itemOfTask[row]], end = (row) => items.end[itemOfTask[row]];
  const ready = known((row) => tasks.ready[row] >= 0 && tasks.dispatch[row] >= 0);
  const live = known((row) => tasks.submit[row] >= 0 && tasks.complete[row] >= 0);
  const every = known(() => true);
  return [
    counterOf("ready tasks", times(ready, (row) => start(row) - tasks.ready[row]),
              times(ready, (row) => start(row) - tasks.dispatch[row])),
    counterOf("busy cores", times(every, start), times(every, end)),
    counterOf("live tasks", times(live, (row) => start(row) - tasks.submit[row]),
              times(live, (row) => end(row) + tasks.complete[row])),
    ...data.rings.map(({ name, times, values }) => ({ name, ...decode({ times, values }) })),
  ];
}

// Return for each task the numbers of the edges that begin, or end, there: numbers[first[task]] to
// numbers[first[task + 1]].
function grouped(ends, count) {
  const first = new Int32Array(count + 1), numbers = new Int32Array(ends.length);
  for (const task of ends) ++first[task + 1];
  for (let task = 0; task < count; ++task) first[task + 1] += first[task];
  const next = first.slice();
  ends.forEach((task, edge) => { numbers[next[task]++] = edge; });
  return { of: (task) => numbers.subarray(first[task], first[task + 1]) };
}

// Return the view after a zoom by `factor` that keeps `time` in its place, within [0, total].
function zoomed(view, factor, time, total) {
  const least = Math.max(total * 1e-9, 1e-3);
  const length = Math.min(Math.max((view.end - view.begin) * factor, least), total);
  const share = (time - view.begin) / (view.end - view.begin);
  return moved({ begin: time - share * length, end: time + (1 - share) * length }, 0, total);
}

function moved(view, by, total) {
  const length = view.end - view.begin;
  const begin = Math.min(Math.max(view.begin + by, 0), Math.max(total - length, 0));
  return { begin, end: begin + length };
}

// Return the view after a key, as in Perfetto: w and s zoom at `time`, a and d move. Return null for
// another key.
function keyed(view, key, time, total) {
  const step = (view.end - view.begin) / 5;
  switch (key.toLowerCase()) {
    case "w": return zoomed(view, 0.7, time, total);
    case "s": return zoomed(view, 1 / 0.7, time, total);
    case "a": return moved(view, -step, total);
    case "d": return moved(view, step, total);
    default: return null;
  }
}

// Return the lines of a table with what happened in a range of time: for each name the number of
// items, their time inside of the range, and the longest such time. Tasks come first; their share is
// that of the time of all cores.
function totals(data, items, range) {
  const length = range.end - range.begin, unit = data.unit;
  const found = { core: new Map(), thread: new Map(), range: new Map() };
  let cores = 0;
  for (const lane of data.lanes) {
    cores += lane.kind === "core";
    let at = lowerBound(items.end, range.begin, lane.first, lane.end);
    for (; at < lane.end && items.start[at] < range.end; ++at) {
      if (lane.kind === "thread" && items.task[at] >= 0) continue;
      const time = Math.min(items.end[at], range.end) - Math.max(items.start[at], range.begin);
      const sums = found[lane.kind].get(items.name[at]) ?? { count: 0, time: 0, most: 0 };
      found[lane.kind].set(items.name[at], sums);
      ++sums.count;
      sums.time += time;
      sums.most = Math.max(sums.most, time);
    }
  }
  const rows = [["", "number", "time", "longest", "share"]];
  const percent = (part, whole) => `${whole > 0 ? ((100 * part) / whole).toFixed(1) : "0.0"} %`;
  const add = (name, { count, time, most }, whole) => rows.push(
    [name, count.toLocaleString("en"), shown(time, unit), shown(most, unit), percent(time, whole)]);
  const all = { count: 0, time: 0, most: 0 };
  for (const kind of ["core", "thread", "range"]) {
    const sorted = [...found[kind]].sort((a, b) => b[1].time - a[1].time);
    for (const [name, sums] of sorted) {
      add(data.names[name], sums, kind === "core" ? length * cores : length);
      if (kind !== "core") continue;
      all.count += sums.count;
      all.time += sums.time;
      all.most = Math.max(all.most, sums.most);
    }
    if (kind === "core") add(`all tasks, on ${cores} cores`, all, length * cores);
  }
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => row[column].length)));
  const text = (row) => row.map((cell, column) =>
    column === 0 ? cell.padEnd(widths[0]) : cell.padStart(widths[column])).join("  ");
  return [`selected: ${shown(length, unit)} from ${shown(range.begin, unit)}`, ...rows.map(text)];
}

// Return the item at a time in a lane, or -1.
function itemAt(items, first, end, time, tolerance) {
  const at = lowerBound(items.end, time - tolerance, first, end);
  return at < end && items.start[at] <= time + tolerance ? at : -1;
}

// Return the rows of the tasks whose kernel contains `text`, or whose number is `text`.
function matches(data, tasks, text) {
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return [];
  const kernels = data.kernels.map((name) => name.toLowerCase().includes(wanted));
  const number = /^\d+$/.test(wanted) ? Number(wanted) : -1;
  const found = [];
  for (let row = 0; row < tasks.task.length; ++row) {
    if (kernels[tasks.kernel[row]] || tasks.task[row] === number) found.push(row);
  }
  return found;
}

function shown(time, unit, digits = 4) {
  if (unit === "steps") return `${Math.round(time)} steps`;
  for (const [limit, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]]) {
    if (Math.abs(time) >= limit) return `${(time / limit).toPrecision(digits)} ${name}`;
  }
  return `${time.toFixed(0)} ns`;
}

// Return a step of 1, 2 or 5 times a power of ten, at least `least`.
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((times) => times * power).find((step) => step >= least);
}

function colour(number) {
  return `hsl(${(number * 137.508) % 360} 60% 62%)`;
}

// Return the lines of text about one item.
function description(data, items, tasks, item) {
  const unit = data.unit;
  const lines = [data.names[items.name[item]]];
  const length = items.end[item] - items.start[item];
  lines.push(`${shown(length, unit)} from ${shown(items.start[item], unit)}`);
  const row = items.task[item];
  if (row < 0) return lines;
  lines.push(`task ${tasks.task[row]}, run ${tasks.run[row]}, core ${data.cores[tasks.core[row]]}`);
  const since = (name) => tasks[name][row];
  if (since("processor") >= 0) lines.push(`a processor ran it for ${shown(since("processor"), unit)}`);
  const parts = [["submitted", "submit"], ["ready", "ready"], ["dispatched", "dispatch"]];
  for (const [what, name] of parts) {
    if (since(name) >= 0) lines.push(`${what} ${shown(since(name), unit)} before its start`);
  }
  const producer = tasks.producer[row];
  if (producer >= 0) {
    lines.push(`released by task ${tasks.task[producer]} (${data.kernels[tasks.kernel[producer]]})`);
  }
  if (tasks.critical[row]) lines.push("on the critical path");
  return [...lines, ...argumentLines(data, tasks, row)];
}

// Return the lines of text about the submit of a task: the source line and the arguments.
function argumentLines(data, tasks, row) {
  if (!data.details) return [];
  const { details, args } = data.decoded;
  const place = details.place[row];
  const lines = place < 0 ? [] : [`submitted at ${data.places[place]}`];
  for (let i = details.first[row]; i < details.first[row] + details.count[row]; ++i) {
    const buffer = args.buffer[i];
    const owner = -1 - buffer;
    let name = data.buffers[buffer];
    if (buffer < 0) {
      name = owner < tasks.task.length
        ? `output of ${data.kernels[tasks.kernel[owner]]}, task ${tasks.task[owner]}` : "an output";
    }
    const offset = args.offset[i];
    lines.push(`  ${data.texts[args.text[i]]} in ${name}${offset ? ` from element ${offset}` : ""}`);
  }
  return lines;
}

// Return the width of the column with the names of the lanes.
function labelWidth(context, named) {
  context.font = FONT;
  const length = ({ name, group }) => context.measureText(`${group ?? ""} ${name}`).width + 24;
  return named.reduce((width, lane) => Math.max(width, length(lane)), 150);
}

function start(data) {
  const items = decode(data.items);
  const tasks = decode(data.tasks);
  const $ = (id) => document.getElementById(id);
  const canvas = $("chart");
  const context = canvas.getContext("2d");
  const LABEL = labelWidth(context, [...data.lanes, ...data.rings]);
  const LANE = 18, TOP = 24, COUNTER = 34, MOST_ARROWS = 4000;
  const itemOfTask = new Int32Array(tasks.task.length).fill(-1);
  const laneOf = new Int32Array(items.start.length);
  data.lanes.forEach((lane, number) => {
    for (let item = lane.first; item < lane.end; ++item) {
      laneOf[item] = number;
      if (lane.kind === "core" && items.task[item] >= 0) itemOfTask[items.task[item]] = item;
    }
  });
  if (data.details) data.decoded = { details: decode(data.details), args: decode(data.arguments) };
  const links = decode(data.edges);
  const into = grouped(links.to, tasks.task.length), outOf = grouped(links.from, tasks.task.length);
  const tracks = counters(data, items, tasks, itemOfTask);
  const LANES = TOP + tracks.length * COUNTER;
  for (const track of tracks) track.most = track.values.reduce((a, b) => Math.max(a, b), 1);
  const state = { view: { begin: 0, end: data.total }, selected: -1, found: [], at: -1, drawn: 0,
                  arrows: 0, seen: [], range: null };
  let highlighted = new Set();

  const isRange = (item) => data.lanes[laneOf[item]].kind === "range";

  function colourOf(item) {
    const row = items.task[item];
    const mode = $("colours").value;
    if (row < 0) return isRange(item) ? colour(items.name[item] + 7) : "#9aa7b3";
    if (highlighted.size > 0 && !highlighted.has(row)) return "#dfe4e8";
    if (mode === "core") return colour(tasks.core[row]);
    if (mode === "critical") return tasks.critical[row] ? "#d6453d" : "#c9d2da";
    return colour(tasks.kernel[row]);
  }

  function draw() {
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = LANES + data.lanes.length * LANE + 4;
    canvas.style.height = `${height}px`;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = FONT;
    context.textBaseline = "middle";
    const chart = width - LABEL;
    drawAxis(chart, height);
    state.drawn = state.arrows = 0;
    state.seen = [];
    drawGroups(width);
    data.lanes.forEach((lane, number) => drawLane(lane, LANES + number * LANE, chart));
    tracks.forEach((track, number) => drawCounter(track, TOP + number * COUNTER, chart));
    drawFlows(chart);
    drawRange(chart, height);
    document.body.dataset.drawn = state.drawn;
    document.body.dataset.arrows = state.arrows;
    document.body.dataset.bound = (2 * data.lanes.length + tracks.length) * Math.ceil(chart);
  }

  function drawCounter(track, y, chart) {
    const height = COUNTER - 6;
    context.fillStyle = "#33424e";
    context.textAlign = "right";
    context.fillText(track.name, LABEL - 8, y + COUNTER / 2 - 6);
    context.fillText(`0 to ${track.most.toLocaleString("en")}`, LABEL - 8, y + COUNTER / 2 + 6);
    context.textAlign = "left";
    context.fillStyle = "#8fb7d9";
    for (const [column, value] of columns(track, state.view, Math.ceil(chart))) {
      ++state.drawn;
      const part = (value / track.most) * height;
      context.fillRect(LABEL + column, y + 4 + height - part, 1, part);
    }
  }

  function drawAxis(chart, height) {
    const { begin, end } = state.view;
    const step = niceStep(((end - begin) * 110) / chart);
    context.strokeStyle = "#e3e8ec";
    context.fillStyle = "#56646f";
    context.textAlign = "left";
    for (let time = Math.ceil(begin / step) * step; time <= end; time += step) {
      const x = LABEL + ((time - begin) / (end - begin)) * chart;
      context.beginPath();
      context.moveTo(x, 0);
      context.lineTo(x, height);
      context.stroke();
      const digits = Math.max(4, Math.ceil(Math.log10((time + step) / step)) + 1);
      context.fillText(shown(time, data.unit, digits), x + 3, TOP / 2);
    }
  }

  // The name of each group of lanes, and a line above it; every other group has a background.
  function drawGroups(width) {
    let groups = 0;
    data.lanes.forEach(({ group }, number) => {
      const y = LANES + number * LANE;
      const isFirst = number === 0 || data.lanes[number - 1].group !== group;
      groups += isFirst;
      if (group && groups % 2 === 0) {
        context.fillStyle = "#eef3f7";
        context.fillRect(0, y, width, LANE);
      }
      if (!isFirst) return;
      context.fillStyle = "#c3ced6";
      context.fillRect(0, y, width, 1);
      context.fillStyle = "#7a8893";
      context.textAlign = "left";
      context.fillText(group, 6, y + LANE / 2);
    });
  }

  // The selected range of time.
  function drawRange(chart, height) {
    if (!state.range) return;
    const { begin, end } = state.view;
    const x = (time) => ((Math.min(Math.max(time, begin), end) - begin) / (end - begin)) * chart;
    const [left, right] = [x(state.range.begin), x(state.range.end)];
    context.fillStyle = "#3b82c433";
    context.fillRect(LABEL + left, 0, Math.max(right - left, 1), height);
  }

  function drawLane(lane, y, chart) {
    context.fillStyle = "#33424e";
    context.textAlign = "right";
    context.fillText(lane.name, LABEL - 8, y + LANE / 2);
    context.textAlign = "left";
    for (const [item, x, width, count] of rectangles(items, lane.first, lane.end, state.view, chart)) {
      ++state.drawn;
      if (lane.kind === "core" && state.seen.length < MOST_ARROWS) state.seen.push(items.task[item]);
      context.fillStyle = count > 1 && highlighted.size === 0 ? "#7f93a3" : colourOf(item);
      context.fillRect(LABEL + x, y + 2, width, LANE - 4);
      if (items.task[item] === state.selected && state.selected >= 0) {
        context.strokeStyle = "#111";
        context.strokeRect(LABEL + x, y + 2, width, LANE - 4);
      }
      if (width > 40) drawName(data.names[items.name[item]], LABEL + x, y, width);
    }
  }

  function drawName(name, x, y, width) {
    context.save();
    context.beginPath();
    context.rect(x, y, width - 2, LANE);
    context.clip();
    context.fillStyle = "#10202c";
    context.fillText(name, x + 4, y + LANE / 2);
    context.restore();
  }

  // The arrows to and from the selected task, or those to each task that has a rectangle.
  function drawFlows(chart) {
    context.save();
    context.beginPath();
    context.rect(LABEL, LANES, chart, data.lanes.length * LANE);
    context.clip();
    const row = state.selected;
    const draw = (edge) => drawFlow(links.from[edge], links.to[edge], chart);
    if (row >= 0) {
      for (const edge of into.of(row)) draw(edge);
      for (const edge of outOf.of(row)) draw(edge);
    }
    if ($("arrows").checked) {
      for (const task of state.seen) for (const edge of into.of(task)) draw(edge);
    }
    context.restore();
  }

  function drawFlow(from, to, chart) {
    const [a, b] = [itemOfTask[from], itemOfTask[to]];
    if (a < 0 || b < 0 || state.arrows >= MOST_ARROWS) return;
    const { begin, end } = state.view;
    const x = (time) => LABEL + ((time - begin) / (end - begin)) * chart;
    const y = (item) => LANES + laneOf[item] * LANE + LANE / 2;
    const [x0, y0, x1, y1] = [x(items.end[a]), y(a), x(items.start[b]), y(b)];
    if (x1 < LABEL || x0 > LABEL + chart) return;
    ++state.arrows;
    const isSelected = from === state.selected || to === state.selected;
    context.strokeStyle = context.fillStyle = isSelected ? "#223" : "#22334466";
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0 + 20, y0, x1 - 20, y1, x1, y1);
    context.stroke();
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x1 - 6, y1 - 3);
    context.lineTo(x1 - 6, y1 + 3);
    context.fill();
  }

  function under(event) {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - LABEL, event.clientY - box.top - LANES];
    const chart = canvas.clientWidth - LABEL;
    const length = state.view.end - state.view.begin;
    const time = state.view.begin + (x / chart) * length;
    const lane = data.lanes[Math.floor(y / LANE)];
    if (!lane || x < 0 || y < 0) return { time, item: -1 };
    return { time, item: itemAt(items, lane.first, lane.end, time, (2 * length) / chart) };
  }

  function select(row) {
    state.selected = row;
    const item = row < 0 ? -1 : itemOfTask[row];
    $("details").textContent =
      item < 0 ? "" : description(data, items, tasks, item).join("\n");
    draw();
  }

  function show(row) {
    const item = itemOfTask[row];
    if (item < 0) return;
    const middle = (items.start[item] + items.end[item]) / 2;
    const wanted = Math.min(state.view.end - state.view.begin, 40 * (items.end[item] - items.start[item]) + 1);
    state.view = moved({ begin: middle - wanted / 2, end: middle + wanted / 2 }, 0, data.total);
    select(row);
  }

  // Select the time between two times, in any order; null selects nothing.
  function selectRange(range) {
    state.range = range && { begin: Math.max(Math.min(...range), 0),
                             end: Math.min(Math.max(...range), data.total) };
    $("totals").textContent = range ? totals(data, items, state.range).join("\n") : "";
    draw();
  }

  function search() {
    state.found = matches(data, tasks, $("search").value);
    state.at = -1;
    highlighted = new Set(state.found);
    $("count").textContent = $("search").value === "" ? "" : `${state.found.length} tasks`;
    draw();
  }

  let drag = null;
  let pointed = null;  // the time under the pointer, where w and s zoom
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const length = state.view.end - state.view.begin;
    if (event.shiftKey) {
      state.view = moved(state.view, (event.deltaY / 1000) * length, data.total);
    } else {
      state.view = zoomed(state.view, 1.0015 ** event.deltaY, under(event).time, data.total);
    }
    draw();
  }, { passive: false });
  canvas.addEventListener("mousedown", (event) => {
    const from = event.shiftKey ? under(event).time : null;
    drag = { x: event.clientX, view: state.view, moved: false, from };
  });
  window.addEventListener("mouseup", (event) => {
    if (drag && !drag.moved && event.target === canvas) {
      const { item } = under(event);
      select(item < 0 ? -1 : items.task[item]);
    }
    drag = null;
  });
  window.addEventListener("mousemove", (event) => {
    if (drag) {
      const by = drag.x - event.clientX;
      drag.moved = drag.moved || Math.abs(by) > 3;
      if (drag.from !== null) {
        if (drag.moved) selectRange([drag.from, under(event).time]);
        return;
      }
      const length = drag.view.end - drag.view.begin;
      state.view = moved(drag.view, (by / (canvas.clientWidth - LABEL)) * length, data.total);
      draw();
      return;
    }
    const { item, time } = event.target === canvas ? under(event) : { item: -1, time: null };
    pointed = time;
    const tip = $("tip");
    tip.hidden = item < 0;
    if (item < 0) return;
    tip.textContent = description(data, items, tasks, item).join("\n");
    tip.style.left = `${Math.min(event.clientX + 12, window.innerWidth - tip.offsetWidth - 20)}px`;
    tip.style.top = `${event.clientY + 14}px`;
  });
  canvas.addEventListener("dblclick", () => {
    state.view = { begin: 0, end: data.total };
    draw();
  });
  window.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (["INPUT", "SELECT"].includes(event.target.tagName) && event.target.type !== "checkbox") return;
    if (event.key === "Escape") selectRange(null);
    const { begin, end } = state.view;
    const isInView = pointed !== null && pointed >= begin && pointed <= end;
    const view = keyed(state.view, event.key, isInView ? pointed : (begin + end) / 2, data.total);
    if (!view) return;
    state.view = view;
    draw();
  });
  $("colours").addEventListener("change", draw);
  $("arrows").addEventListener("change", draw);
  $("search").addEventListener("input", search);
  $("search").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || state.found.length === 0) return;
    const step = event.shiftKey ? state.found.length - 1 : 1;
    state.at = state.at < 0 ? 0 : (state.at + step) % state.found.length;
    show(state.found[state.at]);
  });
  $("path").addEventListener("click", () => {
    const rows = [...tasks.critical.keys()].filter((row) => tasks.critical[row]);
    if (rows.length > 0) show(rows[rows.length - 1]);
  });
  window.addEventListener("resize", draw);
  window.timeline = { state, draw, show, selectRange };
  draw();
}

if (typeof document !== "undefined") {
  start(JSON.parse(document.getElementById("data").textContent));
} else {
  module.exports = { decode, lowerBound, rectangles, columns, counterOf, counters, grouped, zoomed,
                     moved, keyed, totals, itemAt, matches, shown, niceStep, description };
}
