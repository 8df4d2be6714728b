// figure.js - a figure of the page as SVG on standard output, for `dpbench report --figure`:
//
//     node figure.js NAME <report.html
//
// The page's own script draws it. This file has the little of a document that the script needs, and no
// drawing. Without a figure of the name: the names on standard error, exit code 2.
"use strict";

const VOID = new Set(["rect", "path", "circle"]);
const escaped = (text) => text.replace(/[&<>"]/g, (c) => ({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\"": "&quot;"})[c]);

class Element {
    constructor(name, attributes = []) {
        Object.assign(this, {name, attributes: new Map(attributes), children: []});
    }

    setAttribute(key, value) {
        this.attributes.set(key, String(value));
    }

    append(...children) {
        this.children.push(...children);
    }

    get lastElementChild() {
        return this.children.filter((child) => child instanceof Element).at(-1) ?? null;
    }

    addEventListener() {} // nobody clicks

    cloneNode() {
        return this; // nothing is shown twice
    }

    toString() {
        const words = [...this.attributes].map(([key, value]) => ` ${key}="${escaped(value)}"`).join("");
        const textOf = (child) => child instanceof Element ? String(child) : escaped(String(child));
        const inside = this.children.map(textOf).join("");
        return `<${this.name}${words}${VOID.has(this.name) && !inside ? "/>" : `>${inside}</${this.name}>`}`;
    }
}

const page = require("fs").readFileSync(0, "utf8"), wanted = process.argv[2];
const between = (start, end) => page.slice(page.lastIndexOf(start) + start.length, page.lastIndexOf(end));
const style = page.slice(page.indexOf("<style>") + 7, page.indexOf("</style>"));
const report = page.slice(page.indexOf('id="report">') + 12);
const document = {
    title: "",
    body: new Element("body"),
    createElementNS: (space, name) => new Element(name, name === "svg" ? [["xmlns", space]] : []),
    getElementById: () => ({textContent: report.slice(0, report.indexOf("</script>"))}),
    querySelector: () => ({textContent: style}),
};
const files = new Function("document", `${between("<script>", "</script>")}\nreturn files;`)(document);
if (files.has(wanted)) {
    process.stdout.write(`${files.get(wanted)()}\n`);
} else {
    process.stderr.write(`${[...files.keys()].join(", ") || "none"}`);
    process.exitCode = 2;
}
