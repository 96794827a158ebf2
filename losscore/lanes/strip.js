/**
 * The token strip: several quantities (lanes) drawn over one text, tied together by one hover and one selection.
 *
 * `mount` draws it into any element; the default export does the same as a Streamlit component. Token text only ever
 * becomes text nodes. Colours, gauges and themes are strip.css: here a token gets its place on a lane's scale as
 * `--f` (0 to 100; 50 is the middle of a diverging scale), or the class `blank` where the lane has no value for it.
 */

const WORDS = {
  listbox: "Tokens, {lane}",
  position: "token {n} of {total}",
  part: "part of {glyph}",
  prompt: "context, not scored",
  special: "special token",
  unscored: "no prediction",
  blank: "no value",
  selected: "selected",
  note_blank: "dotted: no value here",
  note_prompt: "faded: context, not scored",
  note_special: "boxed: special token",
};

const SPELLED = /([·⏎⇥␍]+|⟨[^⟩]*⟩)/;
const BLANKS = /^[·⏎⇥␍]/;
const MARKS = { "·": " ", "⏎": "\n", "⇥": "\t", "␍": "\r" };
const TOOLTIP_CHARACTERS = 80;
const PAGE = 10;
const FIRST_TOKENS = 600;
const LINE_TOLERANCE = 10;
const GAP = 8;

/** Draw `data` into `root`. Options: `selected`, an index; `onSelect(index)`, called when a person selects. */
export function mount(root, data, options = {}) {
  const strip = element("div", "losscore-strip");
  const tip = element("div", "tip");
  const listeners = new AbortController();
  let words, panes, inks;
  let selected = null;
  let cursor = 0;
  let hot = null;
  let shown = null;

  tip.popover = "manual";
  tip.setAttribute("aria-hidden", "true");
  root.append(strip);

  function build() {
    words = { ...WORDS, ...data.labels };
    ({ panes, inks } = data.view === "stripes" ? stripes(data, words) : cards(data, words));
    strip.dataset.view = data.view;
    const lanes = element("div", "lanes");
    lanes.append(...panes.map((pane) => pane.node));
    strip.replaceChildren(lanes, notes(data, words), tip);
    paint(inks, data.lanes);
    requestAnimationFrame(() => setTimeout(unfold));
    hot = null;
    const kept = Math.min(cursor, Math.max(data.tokens.length - 1, 0));
    mark(selected);
    moveCursor(kept);
  }

  // The end of a long text is laid out after the first paint, or as soon as somebody asks for it.
  function unfold() {
    for (const rest of strip.querySelectorAll(".rest[hidden]")) rest.hidden = false;
  }

  function copies(index) {
    return panes.map((pane) => pane.chips[index]).filter(Boolean);
  }

  function mark(index) {
    for (const chip of copies(selected)) chip.setAttribute("aria-selected", "false");
    selected = Number.isInteger(index) && data.tokens[index] !== undefined ? index : null;
    for (const chip of copies(selected)) chip.setAttribute("aria-selected", "true");
    if (selected !== null) moveCursor(selected);
  }

  function moveCursor(index) {
    for (const chip of copies(cursor)) chip.tabIndex = -1;
    for (const chip of copies(index)) chip.tabIndex = 0;
    cursor = index;
  }

  function choose(index) {
    if (index === selected) return;
    mark(index);
    options.onSelect?.(index);
  }

  function heat(index) {
    for (const chip of copies(hot)) chip.classList.remove("hot");
    for (const chip of copies(index)) chip.classList.add("hot");
    hot = index;
  }

  function point(chip, lane, pointer) {
    const index = Number(chip.dataset.i);
    if (index !== hot) heat(index);
    shown = { chip, lane, pointer };
    tip.replaceChildren(...sayings(data, words, index, lane));
    if (!tip.matches(":popover-open")) tip.showPopover();
    place(tip, chip, pointer);
  }

  function leave() {
    heat(null);
    closeTip();
  }

  function closeTip() {
    shown = null;
    if (tip.matches(":popover-open")) tip.hidePopover();
  }

  function follow() {
    if (!shown) return;
    const frame = visibleFrame(shown.chip);
    if (frame.bottom > frame.top) place(tip, shown.chip, shown.pointer);
    else closeTip();
  }

  function scrollTogether(moved) {
    const top = moved.list.scrollTop;
    if (Math.abs(top - moved.top) < 2) return;
    for (const pane of panes) {
      if (pane !== moved) pane.list.scrollTop = top;
      pane.top = pane.list.scrollTop;
    }
  }

  function speak(chip) {
    const index = Number(chip.dataset.i);
    chip.setAttribute("aria-label", spoken(data, words, index, laneOf(chip), index === selected));
  }

  const on = (target, type, act, more) => target.addEventListener(type, act, { signal: listeners.signal, ...more });

  on(strip, "pointerover", (event) => {
    if (event.pointerType === "touch") return;
    const chip = chipOf(event.target);
    if (chip) point(chip, laneOf(event.target), { x: event.clientX, y: event.clientY });
    else leave();
  });
  on(strip, "pointerleave", (event) => {
    if (event.pointerType !== "touch") leave();
  });
  on(strip, "click", (event) => {
    const chip = chipOf(event.target);
    if (!chip) return;
    choose(Number(chip.dataset.i));
    point(chip, laneOf(event.target), { x: event.clientX, y: event.clientY });
  });
  on(strip, "copy", (event) => {
    const root = strip.getRootNode();
    const chosen = root.getSelection?.() ?? document.getSelection();
    const pane = panes.find(({ list }) => list.contains(chosen?.anchorNode) && list.contains(chosen.focusNode));
    if (!pane) return;
    const range = chosen.getRangeAt(0);
    const whole = pane.chips.filter((chip) => range.intersectsNode(chip)).map((chip) => data.tokens[chip.dataset.i]);
    event.clipboardData.setData("text/plain", typed(whole.join("")));
    event.preventDefault();
  });
  on(strip, "focusin", (event) => {
    const chip = chipOf(event.target);
    if (!chip) return;
    moveCursor(Number(chip.dataset.i));
    speak(chip);
    if (chip.matches(":focus-visible")) point(chip, laneOf(chip));
  });
  on(strip, "focusout", (event) => {
    chipOf(event.target)?.removeAttribute("aria-label");
    if (!strip.contains(event.relatedTarget)) leave();
  });
  on(strip, "keydown", (event) => {
    const chip = chipOf(event.target);
    if (!chip || event.ctrlKey || event.metaKey || event.altKey) return;
    const { chips } = panes.find((pane) => pane.list.contains(chip));
    unfold();
    const to = destination(event.key, chips, Number(chip.dataset.i));
    if (to !== null) {
      chips[to].focus({ preventScroll: true });
      chips[to].scrollIntoView({ block: "nearest", inline: "nearest" });
    } else if (event.key === "Enter" || event.key === " ") {
      choose(Number(chip.dataset.i));
      speak(chip);
      point(chip, laneOf(chip));
    } else if (event.key === "Escape" && shown) {
      event.stopPropagation();
      closeTip();
    } else {
      return;
    }
    event.preventDefault();
  });
  on(strip, "scroll", (event) => {
    const moved = panes.find((pane) => pane.list === event.target);
    if (moved) scrollTogether(moved);
    follow();
  }, { capture: true, passive: true });
  on(window, "scroll", follow, { capture: true, passive: true });
  on(window, "resize", leave);
  on(window, "pointerdown", (event) => {
    if (!event.composedPath().some((node) => node.dataset?.i !== undefined)) leave();
  }, { capture: true });

  build();
  mark(options.selected);

  return {
    select(index) {
      unfold();
      mark(index);
      panes.forEach((pane) => pane.chips[selected] && reveal(pane.list, pane.chips[selected]));
    },
    update(next) {
      const same = structure(next) === structure(data);
      const active = root.getRootNode().activeElement;
      data = next;
      if (same) {
        paint(inks, data.lanes);
        if (shown) point(shown.chip, shown.lane, shown.pointer);
        if (strip.contains(active) && chipOf(active)) speak(active);
        return;
      }
      closeTip();
      const focused = panes.findIndex((pane) => pane.list.contains(active));
      const top = panes[0]?.list.scrollTop ?? 0;
      build();
      unfold();
      for (const pane of panes) pane.list.scrollTop = top;
      panes[Math.min(focused, panes.length - 1)]?.chips[cursor]?.focus({ preventScroll: true });
    },
    destroy() {
      listeners.abort();
      strip.remove();
    },
  };
}

const components = new WeakMap();

/** Entry of the Streamlit component. It runs again on every change, so the strip is kept beside its element. */
export default function ({ data: { selected, ...data }, parentElement, setStateValue }) {
  const held = components.get(parentElement) ?? { run: 0, strip: null, selected, asked: selected };
  const asked = selected !== held.asked;
  const signature = JSON.stringify(data);
  if (asked) held.selected = selected;
  held.run += 1;
  held.asked = selected;
  held.report = (index) => {
    held.selected = index;
    setStateValue("selected", index);
  };
  components.set(parentElement, held);

  if (!held.strip) {
    const onSelect = (index) => held.report(index);
    held.strip = mount(parentElement, data, { selected: held.selected, onSelect });
  } else if (signature !== held.signature) {
    held.strip.update(data);
  }
  if (asked) held.strip.select(selected);
  held.signature = signature;

  // Streamlit also cleans up after runs that a newer one has overtaken; only the newest may take the strip down.
  const { run } = held;
  return () => {
    if (run !== held.run) return;
    held.strip?.destroy();
    held.strip = null;
  };
}

/** What decides the elements; everything else `paint` changes in place. */
function structure(data) {
  const lanes = data.lanes.map(({ fill, value, ...lane }) => lane);
  return JSON.stringify({ ...data, lanes, blanks: hasBlanks(data) });
}

function hasBlanks(data) {
  return data.lanes.some((lane) => lane.fill.includes(null));
}

function cards(data, words) {
  const text = prose(data);
  const panes = data.lanes.map((lane) => {
    const node = element("section", "pane");
    const list = listbox(words, `${lane.title}, ${lane.name}`);
    list.append(text.cloneNode(true));
    node.append(heading(lane), element("p", "line", lane.line), legend(lane), list);
    return { node: dress(node, lane), list, chips: [...list.querySelectorAll("[data-i]")], top: 0 };
  });
  return { panes, inks: panes.map((pane) => pane.chips) };
}

function stripes(data, words) {
  const bars = document.createDocumentFragment();
  for (const lane of data.lanes) bars.append(dress(element("span", "bar"), lane));
  const node = element("section", "pane");
  const key = element("div", "key");
  for (const lane of data.lanes) {
    const row = dress(element("div", "key-row"), lane);
    row.append(heading(lane), legend(lane), element("p", "line", lane.line));
    key.append(row);
  }
  const list = listbox(words, data.lanes.map((lane) => lane.title).join(", "));
  list.append(prose(data));
  const chips = [...list.querySelectorAll("[data-i]")];
  for (const chip of chips) chip.append(bars.cloneNode(true));
  node.append(key, list);
  const inks = data.lanes.map((_, l) => chips.map((chip) => [...chip.children].at(l - data.lanes.length)));
  return { panes: [{ node, list, chips, top: 0 }], inks };
}

function prose(data) {
  const text = document.createDocumentFragment();
  const rest = element("span", "rest");
  rest.hidden = true;
  const breaks = new Set(data.breaks);
  const blank = element("span", "tok");
  blank.setAttribute("role", "option");
  blank.setAttribute("aria-selected", "false");
  blank.setAttribute("tabindex", "-1");
  let flow = text;
  let into = text;
  let end = -1;
  data.tokens.forEach((token, i) => {
    if (i >= FIRST_TOKENS && into === text) into = flow = rest;
    const glyph = data.glyphs?.[i];
    if (glyph || BLANKS.test(token)) into.append(element("wbr"));
    if (glyph) {
      into = element("span", "glyph");
      const face = element("span", "glyph-face", glyph[0]);
      face.setAttribute("aria-hidden", "true");
      into.append(face);
      flow.append(into);
      end = i + glyph[1] - 1;
    }
    const chip = blank.cloneNode();
    chip.setAttribute("data-i", i);
    chip.setAttribute("data-kind", data.kinds[i]);
    // A newline token often carries the next line's indentation, which belongs after the line break.
    const bend = breaks.has(i) && data.view !== "stripes" ? token.lastIndexOf("⏎") + 1 : 0;
    const bent = bend > 0 && bend < token.length;
    if (bent) chip.append(...spell(token.slice(0, bend)), element("br"));
    chip.append(...spell(bent ? token.slice(bend) : token));
    into.append(chip);
    if (i >= end) into = flow;
    if (breaks.has(i) && !bent) into.append(element("br"));
  });
  if (flow === rest) text.append(rest);
  return text;
}

/** Token text as text nodes, with the marks that stand for blanks and for bytes set apart. */
function spell(token) {
  return token.split(SPELLED).map((run, k) => (k % 2 ? element("span", run[0] === "⟨" ? "code" : "mark", run) : run));
}

/** What was typed, from what is shown of it: a typed mark is spelled out, so that a mark always stands for a blank. */
function typed(shown) {
  const bytes = shown
    .replaceAll("\u25cc", "") // the circle under a combining mark
    .split(/(⟨[^⟩]*⟩)/)
    .flatMap((run) => {
      if (run.startsWith("⟨U+")) return utf8(String.fromCodePoint(parseInt(run.slice(3), 16)));
      if (run.startsWith("⟨")) return run.match(/[0-9A-F]{2}/g).map((byte) => parseInt(byte, 16));
      return utf8(run.replace(/[·⏎⇥␍]/g, (mark) => MARKS[mark]));
    });
  return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes));
}

function utf8(text) {
  return [...new TextEncoder().encode(text)];
}

function paint(inks, lanes) {
  lanes.forEach((lane, l) => {
    inks[l].forEach((node, i) => {
      const fill = lane.fill[i] ?? null;
      node.classList.toggle("blank", fill === null);
      node.classList.toggle("low", fill !== null && fill < 50);
      node.style.setProperty("--f", fill ?? 0);
    });
  });
}

function dress(node, lane) {
  Object.assign(node.dataset, { lane: lane.key, scale: lane.scale, hue: lane.hue });
  if (lane.low_hue) node.dataset.lowHue = lane.low_hue;
  return node;
}

function listbox(words, lane) {
  const list = element("div", "text");
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-orientation", "horizontal");
  list.setAttribute("aria-label", fillIn(words.listbox, { lane }));
  return list;
}

function heading(lane) {
  const head = element("header", "head");
  head.append(element("strong", "title", lane.title), element("span", "name", lane.name));
  return head;
}

function legend(lane) {
  const node = element("div", "legend");
  node.append(element("span", "ramp"), element("span", "end", lane.low));
  if (lane.neutral) node.append(element("span", "middle", lane.neutral));
  node.append(element("span", "end", lane.high));
  return node;
}

function notes(data, words) {
  const node = element("p", "notes");
  const note = (className, kind, text) => {
    const sample = element("span", `tok ${className}`, "abc");
    sample.dataset.kind = kind;
    const item = element("span", "note");
    item.append(sample, text);
    node.append(item);
  };
  if (hasBlanks(data)) note("blank", "t", words.note_blank);
  if (data.kinds.includes("p")) note("", "p", words.note_prompt);
  if (data.kinds.includes("s")) note("", "s", words.note_special);
  return node;
}

function sayings(data, words, index, hovered) {
  const token = element("div", "tip-token");
  const text = data.tokens[index];
  token.append(...spell(text.slice(0, TOOLTIP_CHARACTERS)), text.length > TOOLTIP_CHARACTERS ? "…" : "");
  const about = [placeOf(data, words, index), partOf(data, words, index), kindOf(data, words, index)];
  const rows = data.lanes.map((lane) => {
    const row = element("div", lane.key === hovered ? "tip-row here" : "tip-row");
    row.dataset.hue = lane.hue;
    const value = lane.value[index] ?? null;
    const said = element("span", value === null ? "tip-value none" : "tip-value", value ?? lane.blank ?? words.blank);
    row.append(element("span", "swatch"), element("span", "tip-title", lane.title), said);
    return row;
  });
  return [token, element("div", "tip-place", about.filter(Boolean).join(" · ")), ...rows];
}

function spoken(data, words, index, here, isSelected) {
  const lanes = [...data.lanes].sort((a, b) => (b.key === here) - (a.key === here));
  const values = lanes.map((lane) => `${lane.title} ${lane.value[index] ?? lane.blank ?? words.blank}`);
  const about = [placeOf(data, words, index), `'${data.tokens[index]}'`, partOf(data, words, index)];
  return [...about, kindOf(data, words, index), ...values, isSelected && words.selected].filter(Boolean).join(", ");
}

function placeOf(data, words, index) {
  return fillIn(words.position, { n: index + 1, i: index, total: data.tokens.length });
}

function partOf(data, words, index) {
  const covers = ([start, [, count]]) => index >= +start && index < +start + count;
  const found = Object.entries(data.glyphs ?? {}).find(covers);
  return found && fillIn(words.part, { glyph: found[1][0] });
}

function kindOf(data, words, index) {
  return { p: words.prompt, s: words.special, x: words.unscored }[data.kinds[index]];
}

/** Beside the pointer (or the token, from the keyboard), inside the window, never over the token. */
function place(tip, chip, pointer) {
  const { offsetWidth: width, offsetHeight: height } = tip;
  const [right, bottom] = [document.documentElement.clientWidth - width - GAP, innerHeight - height - GAP];
  const within = (value, most) => Math.max(GAP, Math.min(value, most));
  const token = visibleFrame(chip);
  const x = within((pointer?.x ?? token.left) - 16, right);
  const y = within((pointer?.y ?? token.top) - 16, bottom);
  const spots = [
    [x, token.bottom + GAP],
    [x, token.top - GAP - height],
    [token.right + GAP, y],
    [token.left - GAP - width, y],
  ];
  const fits = ([left, top]) => left >= 0 && left <= right + GAP && top >= 0 && top <= bottom + GAP;
  // A token as large as the window leaves no free spot: then keep clear of the pointer.
  const [left, top] = spots.find(fits) ?? [x, within((pointer?.y ?? token.top) + 2 * GAP, bottom)];
  tip.style.left = `${left}px`;
  tip.style.top = `${top}px`;
}

/** The part of a token that its pane's own scrolling and the window leave to be seen. */
function visibleFrame(chip) {
  const box = chip.getBoundingClientRect();
  const list = chip.closest(".text").getBoundingClientRect();
  return {
    left: box.left,
    right: box.right,
    top: Math.max(box.top, list.top, 0),
    bottom: Math.min(box.bottom, list.bottom, innerHeight),
  };
}

function reveal(list, chip) {
  const [frame, box] = [list.getBoundingClientRect(), chip.getBoundingClientRect()];
  if (box.top < frame.top) list.scrollTop -= frame.top - box.top + GAP;
  else if (box.bottom > frame.bottom) list.scrollTop += box.bottom - frame.bottom + GAP;
}

function destination(key, chips, index) {
  const steps = { ArrowRight: 1, ArrowLeft: -1, PageDown: PAGE, PageUp: -PAGE, Home: -Infinity, End: Infinity };
  if (key in steps) return Math.max(0, Math.min(index + steps[key], chips.length - 1));
  if (key === "ArrowDown") return lineNeighbour(chips, index, 1);
  if (key === "ArrowUp") return lineNeighbour(chips, index, -1);
  return null;
}

/** The token nearest on the next visual line in `direction`; the same token where there is none. */
function lineNeighbour(chips, index, direction) {
  const own = [...chips[index].getClientRects()].at(direction > 0 ? -1 : 0);
  const middle = (own.left + own.right) / 2;
  let [line, best, nearest] = [null, index, Infinity];
  for (let i = index + direction; chips[i]; i += direction) {
    const rects = [...chips[i].getClientRects()].filter((r) => (r.top - own.top) * direction > LINE_TOLERANCE);
    for (const rect of direction > 0 ? rects : rects.reverse()) {
      line ??= rect.top;
      if (Math.abs(rect.top - line) > LINE_TOLERANCE) return best;
      const distance = Math.max(rect.left - middle, middle - rect.right, 0);
      if (distance < nearest) [best, nearest] = [i, distance];
    }
  }
  return best;
}

function chipOf(target) {
  return target.closest("[data-i]");
}

function laneOf(target) {
  return target.closest("[data-lane]")?.dataset.lane;
}

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function fillIn(template, values) {
  return template.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}
