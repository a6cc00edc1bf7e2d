// graphile-worker: the settings of its own page on performance, and a short polling interval.
//
// Jobs that were put off are found by polling. It keeps no history: a job that is done is deleted.
"use strict";

const { Logger, makeWorkerUtils, run } = require("graphile-worker");
const { inParts, serve } = require("./protocol.cjs");

const QUIET = new Logger(() => () => {});

function presetOn(url) {
  return {
    worker: {
      connectionString: url,
      concurrentJobs: 24,
      maxPoolSize: 25,
      pollInterval: 20,
      localQueue: { size: 500 },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
      logger: QUIET,
    },
  };
}

async function enqueue(url, dues) {
  const utils = await makeWorkerUtils({ preset: presetOn(url) });
  await utils.migrate();
  const begun = performance.now();
  for (const part of inParts(dues)) {
    await utils.addJobs(
      part.map(({ number, at }) => ({ identifier: "note", payload: { number }, runAt: at })),
    );
  }
  const took = performance.now() - begun;
  await utils.release();
  return took;
}

async function work(url, starts) {
  const runner = await run({
    preset: presetOn(url),
    noHandleSignals: true,
    taskList: { note: async ({ number }) => starts.note(number) },
  });
  await starts.ended;
  await runner.stop();
}

serve(enqueue, work);
