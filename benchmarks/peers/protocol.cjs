// What every peer written in JavaScript is asked on its command line: the same as in protocol.py.
"use strict";

const fs = require("node:fs");

class Starts {
  constructor(count) {
    this.count = count;
    this.noted = [];
    this.ended = new Promise((resolve) => {
      this.end = resolve;
    });
  }

  note(number) {
    // Date.now() counts whole milliseconds; lateness is measured in fewer.
    this.noted.push([number, Math.floor((performance.timeOrigin + performance.now()) * 1000)]);
    if (this.noted.length >= this.count) this.end();
  }

  write(path) {
    fs.writeFileSync(path, this.noted.map(([number, at_us]) => `${number} ${at_us}\n`).join(""));
  }
}

function* inParts(dues, size = 1000) {
  for (let start = 0; start < dues.length; start += size) yield dues.slice(start, start + size);
}

async function serve(enqueue, work) {
  const [command, url, ...others] = process.argv.slice(2);
  if (command === "enqueue") {
    const lines = fs.readFileSync(others[0], "utf8").split("\n").filter(Boolean);
    const dues = lines.map((line, number) => ({ number, at: new Date(Number(line) / 1000) }));
    console.log((await enqueue(url, dues)) / 1000);
  } else {
    const starts = new Starts(Number(others[0]));
    process.on("SIGTERM", () => starts.end());
    try {
      await work(url, starts);
    } finally {
      starts.write(others[1]);
    }
  }
  process.exit(0);
}

module.exports = { serve, inParts };
