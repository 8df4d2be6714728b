/*
 * reader.js DIR TRACE...: Perfetto's trace processor reads each TRACE. What it finds is compared
 * with the file: every span on its row, with its time, its length to the nanosecond and its depth.
 * Prints a line for each, and `N passed, N failed, N skipped`.
 *
 * DIR has the engine of Perfetto's pages: engine_bundle.js, a browser's worker, and its
 * trace_processor.wasm. A worker has a port for messages of Perfetto's trace_processor.proto.
 */
'use strict';
const assert = require('assert'), fs = require('fs'), path = require('path'), vm = require('vm');

const APPEND = 1, FINALIZE = 2, QUERY = 3; // TraceProcessorRpc.TraceProcessorMethod

const SPANS = `
  select slice.name, category, slice.ts, slice.dur, depth, tid, thread.name as row, pid,
    process.name as rank
  from slice join thread_track on track_id = thread_track.id join thread using (utid)
    join process using (upid)`;
const ERRORS = `
  select name, value from stats where severity in ('error', 'data_loss') and value > 0`;

/* ---- protocol buffers ---------------------------------------------------------------------- */

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128))
    bytes.push(value % 128 | 128);
  return Buffer.from([...bytes, value]);
}

const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);

function bytes(field, value) {
  value = Buffer.from(value);
  return Buffer.concat([varint(field * 8 + 2), varint(value.length), value]);
}

function readVarint(buffer, at) {
  let value = 0n, shift = 0n;
  do
    value |= BigInt(buffer[at] & 127) << shift, shift += 7n;
  while (buffer[at++] & 128);
  return [BigInt.asIntN(64, value), at];
}

/* The fields of a message: [number, BigInt or Buffer]. */
function* fields(buffer) {
  for (let at = 0, tag, value; at < buffer.length;) {
    [tag, at] = readVarint(buffer, at);
    [value, at] = (tag & 7n) === 1n ? [buffer.subarray(at, at + 8), at + 8] : readVarint(buffer, at);
    if ((tag & 7n) === 2n) {
      at += Number(value);
      value = buffer.subarray(at - Number(value), at);
    }
    yield [Number(tag >> 3n), value];
  }
}

const only = (buffer, wanted) =>
  [...fields(buffer)].filter(([field]) => field === wanted).map(([, value]) => value);

function packed(buffer) {
  const values = [];
  for (let at = 0, value; at < buffer.length;) {
    [value, at] = readVarint(buffer, at);
    values.push(value);
  }
  return values;
}

/* The rows of a query's QueryResults, of which the first has the columns' names: objects by column.
 * Cells lie by type: 1 null, 2 integer, 4 string. */
function rows(results) {
  const [error] = results.flatMap((result) => only(result, 2));
  assert(!error, String(error));
  const names = results.flatMap((result) => only(result, 1)).map(String), cells = [];
  for (const batch of results.flatMap((result) => only(result, 3))) {
    const integers = only(batch, 2).flatMap(packed);
    const strings = only(batch, 5).flatMap((s) => String(s).split('\0'));
    const next = {1: () => null, 2: () => Number(integers.shift()), 4: () => strings.shift()};
    cells.push(...only(batch, 1).flatMap(packed).map((type) => next[type]()));
  }
  const made = [];
  while (cells.length)
    made.push(Object.fromEntries(cells.splice(0, names.length).map((c, i) => [names[i], c])));
  return made;
}

/* ---- the trace processor ------------------------------------------------------------------- */

class Processor {
  constructor(dir) {
    const worker = {
      TextDecoder, URL, setTimeout, performance, crypto, location: {href: 'file:///'},
      console: {log() {}, warn() {}, error() {}}, WorkerGlobalScope() {},
      XMLHttpRequest: class {
        open(method, url) { this.url = url; }
        send() { this.response = fs.readFileSync(path.join(dir, this.url)); }
      },
    };
    worker.self = worker;
    vm.createContext(worker);
    vm.runInContext(fs.readFileSync(path.join(dir, 'engine_bundle.js'), 'utf8'), worker);
    this.Bytes = vm.runInContext('Uint8Array', worker);
    this.replies = [];
    this.port = {postMessage: (reply) => this.replies.push(Buffer.from(reply))};
    this.sequence = 0;
    worker.onmessage({data: this.port});
  }

  /* The replies' fields `wanted`. */
  call(method, wanted, args = Buffer.alloc(0)) {
    const message = Buffer.concat([number(1, this.sequence++), number(2, method), args]);
    this.replies = [];
    this.port.onmessage({data: this.Bytes.from(bytes(1, message))});
    const messages = this.replies.flatMap((stream) => only(stream, 1));
    for (const [fatal] of messages.map((m) => only(m, 5)))
      assert(!fatal, String(fatal));
    return messages.flatMap((m) => only(m, wanted));
  }

  load(trace) {
    for (const result of [...this.call(APPEND, 201, bytes(101, fs.readFileSync(trace))),
                          ...this.call(FINALIZE, 202)])
      assert(!only(result, 2).length, String(only(result, 2)));
  }

  query(sql) { return rows(this.call(QUERY, 203, bytes(103, bytes(1, sql)))); }
}

/* ---- the file ------------------------------------------------------------------------------ */

const ns = (us) => Math.round(us * 1000);

/* The spans, with the names of their rows and their depths there. */
function spansOf(events) {
  const names = {}, open = {};
  for (const e of events.filter((e) => e.ph === 'M'))
    names[`${e.name} ${e.pid} ${e.name === 'thread_name' ? e.tid : ''}`] = e.args.name;
  const spans = events.filter((e) => 'Xi'.includes(e.ph)).map((e) => ({
    name: e.name, category: e.cat, ts: ns(e.ts), dur: ns(e.dur || 0), depth: 0, tid: e.tid,
    row: names[`thread_name ${e.pid} ${e.tid}`], pid: e.pid, rank: names[`process_name ${e.pid} `],
  }));
  for (const span of [...spans].sort((a, b) => a.ts - b.ts || b.dur - a.dur)) {
    const around = (open[`${span.pid} ${span.tid}`] ||= []);
    while (around.length && around.at(-1).ts + around.at(-1).dur <= span.ts)
      around.pop();
    span.depth = around.length;
    around.push(span);
  }
  return spans;
}

function compare(processor, file) {
  const text = (spans) => spans.map((span) => JSON.stringify(span)).sort();
  const wanted = text(spansOf(JSON.parse(fs.readFileSync(file, 'utf8')).traceEvents));
  processor.load(file);
  const errors = processor.query(ERRORS), found = text(processor.query(SPANS));
  assert(!errors.length, JSON.stringify(errors));
  assert(wanted.length > 0, 'it has no span');
  const at = wanted.findIndex((span, i) => span !== found[i]);
  assert(at < 0 && found.length === wanted.length,
    `${found.length} spans of ${wanted.length}: ${found[at]} is not ${wanted[at]}`);
}

function check(dir, file, done) {
  const processor = new Processor(dir);
  setTimeout(() => { // the engine is ready behind its promise
    let failure = '';
    try {
      compare(processor, file);
    } catch (error) {
      failure = `: ${error.message}`;
    }
    console.log(`${failure ? 'FAILED' : 'ok'} ${file}${failure}`);
    done(!failure);
  });
}

function next(dir, files, passed, failed) {
  if (files.length)
    return check(dir, files[0],
      (well) => next(dir, files.slice(1), passed + well, failed + !well));
  console.log(`${passed} passed, ${failed} failed, 0 skipped`);
  process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
}

next(process.argv[2], process.argv.slice(3), 0, 0);
