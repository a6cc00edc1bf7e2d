// pg-boss: several polling workers at its shortest interval, one after the other, large batches.
//
// A worker polls every half second at most, however many jobs are left: so a batch holds a whole
// burst, and several workers, started a part of that interval apart, find a due job sooner.
"use strict";

const PgBoss = require("pg-boss");
const { inParts, serve } = require("./protocol.cjs");

const QUEUE = "note";
const INTERVAL_S = 0.5;
const WORKERS = 5;
const BATCH = 20_000;

function bossOn(url) {
  const boss = new PgBoss({ connectionString: url, max: 10, schedule: false });
  boss.on("error", console.error);
  return boss;
}

async function enqueue(url, dues) {
  const boss = bossOn(url);
  await boss.start();
  await boss.createQueue(QUEUE);
  const begun = performance.now();
  for (const part of inParts(dues)) {
    await boss.insert(
      part.map(({ number, at }) => ({ name: QUEUE, data: { number }, startAfter: at })),
    );
  }
  const took = performance.now() - begun;
  await boss.stop({ graceful: true, timeout: 10_000 });
  return took;
}

async function work(url, starts) {
  const boss = bossOn(url);
  await boss.start();
  for (let count = 0; count < WORKERS; count += 1) {
    await boss.work(
      QUEUE,
      { batchSize: BATCH, pollingIntervalSeconds: INTERVAL_S, priority: false },
      async (jobs) => {
        for (const job of jobs) starts.note(job.data.number);
      },
    );
    await new Promise((resolve) => setTimeout(resolve, (INTERVAL_S * 1000) / WORKERS));
  }
  await starts.ended;
  await boss.stop({ graceful: true, timeout: 10_000 });
}

serve(enqueue, work);
