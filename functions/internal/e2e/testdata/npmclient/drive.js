// Does to an app with DurableClient whatever that can do, and tells what came of it, a line a step.
// node drive.js BASE_URL TASK_HUB CONNECTION MODE FILE
// MODE is "templates", with the URLs that the durableClient binding has, or "rpc", below rpcBaseUrl.
// FILE is what NeedsFile needs, and is made here.
"use strict";
const fs = require("fs");
const { DurableClient } = require("durable-functions/lib/src/durableClient/DurableClient");
const { EntityId } = require("durable-functions");

const [base, hub, connection, mode, file] = process.argv.slice(2);
const query = `taskHub=${hub}&connection=${connection}&code=key`;
const instance = `${base}/instances/INSTANCEID`;
const create = `${base}/orchestrators/{functionName}[/{instanceId}]`;
const operation = (name) => `${instance}/${name}?reason={text}&${query}`;
const binding = {
  taskHubName: hub,
  creationUrls: {
    createNewInstancePostUri: `${create}?code=key`,
    createAndWaitOnNewInstancePostUri: `${create}?timeout={timeoutInSeconds}&pollingInterval={intervalInSeconds}&code=key`,
  },
  managementUrls: {
    id: "INSTANCEID",
    statusQueryGetUri: `${instance}?${query}`,
    sendEventPostUri: `${instance}/raiseEvent/{eventName}?${query}`,
    terminatePostUri: operation("terminate"),
    rewindPostUri: operation("rewind"),
    suspendPostUri: operation("suspend"),
    resumePostUri: operation("resume"),
    purgeHistoryDeleteUri: `${instance}?${query}`,
    restartPostUri: `${instance}/restart?${query}`,
  },
  baseUrl: base,
  requiredQueryStringParameters: "code=key",
};
if (mode === "rpc") {
  binding.rpcBaseUrl = base + "/";
}
// Which of its methods are called; those that it only calls itself do not count.
const inner = ["constructor", "getDistributedTracingHeaders", "createHttpResponse", "getClientResponseLinks", "hasValidRequestUrl",
  "extractUniqueWebhookOrigins", "extractWebhookOrigins", "getStatusInternal", "createGenericError"];
const never = new Set(Object.getOwnPropertyNames(DurableClient.prototype).filter((name) => !inner.includes(name)));
const client = new Proxy(new DurableClient(binding), {
  get(target, name) {
    never.delete(name);
    return Reflect.get(target, name, target);
  },
});

const tell = (step, value) => console.log(`${step}: ${JSON.stringify(value)}`);
const fails = async (step, promise) => tell(step, await promise.then(() => "no error", (e) => e.message));
const becomes = async (id, status) => {
  for (let n = 0; n < 300; n++) {
    const s = await client.getStatus(id, { showInput: true });
    if (s.runtimeStatus === status) return s;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`${id} did not become ${status}`);
};

(async () => {
  const began = new Date(Date.now() - 60000);

  const steps = await client.startNew("Steps", { input: { steps: 2 } });
  const waited = await client.waitForCompletionOrCreateCheckStatusResponse({ url: base, method: "GET" }, steps, {
    timeoutInMilliseconds: 20000,
    retryIntervalInMilliseconds: 200,
  });
  tell("waited", [waited.status, JSON.parse(await new Response(waited.body).text())]);
  const s = await client.getStatus(steps, { showHistory: true, showHistoryOutput: true });
  tell("status", [s.name, s.runtimeStatus, s.input, s.output, s.createdTime instanceof Date]);

  const id = "my blank id";
  tell("startNew", (await client.startNew("Waits", { instanceId: id, version: "1.0" })) === id);
  tell("input", (await becomes(id, "Running")).input);
  await fails("startNew twice", client.startNew("Waits", { instanceId: id }));
  await client.suspend(id, "because of");
  await becomes(id, "Suspended");
  await fails("suspend twice", client.suspend(id, "because of"));
  await client.resume(id, "on with it");
  await becomes(id, "Running");
  await client.raiseEvent(id, "Unrelated");
  await client.raiseEvent(id, "Answer", "héllo");
  tell("raiseEvent", (await becomes(id, "Completed")).output);
  await fails("raiseEvent late", client.raiseEvent(id, "Answer", 1));
  await fails("raiseEvent unknown", client.raiseEvent("unknown id", "Answer", 1));

  const doomed = await client.startNew("Waits");
  await becomes(doomed, "Running");
  await client.terminate(doomed, "enough of that");
  tell("terminate", (await becomes(doomed, "Terminated")).output);
  await fails("terminate late", client.terminate(doomed, "again"));
  await fails("terminate unknown", client.terminate("unknown id", "again"));

  const broken = await client.startNew("NeedsFile", { input: file });
  await becomes(broken, "Failed");
  fs.writeFileSync(file, "");
  await client.rewind(broken, "mended now");
  tell("rewind", (await becomes(broken, "Completed")).output);
  await fails("rewind completed", client.rewind(broken, "again"));
  await fails("rewind unknown", client.rewind("unknown id", "again"));

  const live = await client.startNew("Waits");
  await becomes(live, "Running");
  tell("getStatusAll", (await client.getStatusAll()).length);
  tell("getStatusBy", (await client.getStatusBy({ createdTimeFrom: began, createdTimeTo: new Date(Date.now() + 60000), runtimeStatus: ["Running", "Terminated"] })).length);
  tell("purgeInstanceHistory", (await client.purgeInstanceHistory(steps)).instancesDeleted);
  tell("purgeInstanceHistory again", (await client.purgeInstanceHistory(steps)).instancesDeleted);
  tell("purgeInstanceHistoryBy", (await client.purgeInstanceHistoryBy({ createdTimeFrom: began, runtimeStatus: ["Completed"] })).instancesDeleted);
  tell("purgeInstanceHistoryBy again", (await client.purgeInstanceHistoryBy({ createdTimeFrom: began, runtimeStatus: ["Completed"] })).instancesDeleted);

  const payload = client.createHttpManagementPayload(live);
  tell("createHttpManagementPayload", Object.keys(payload).sort());
  const answer = await fetch(payload.statusQueryGetUri);
  tell("its statusQueryGetUri", [answer.status, (await answer.json()).runtimeStatus]);
  const event = { method: "POST", headers: { "Content-Type": "application/json" }, body: "1" };
  tell("its sendEventPostUri", (await fetch(payload.sendEventPostUri.replace("{eventName}", "Unrelated"), event)).status);
  const restarted = await fetch(payload.restartPostUri, { method: "POST" });
  tell("its restartPostUri", restarted.status);
  await client.terminate((await restarted.json()).id, "the end");
  const request = { url: `${base}/anything`, method: "POST" };
  const check = client.createCheckStatusResponse(request, live);
  tell("createCheckStatusResponse", [check.status, check.headers.get("Retry-After"), check.headers.get("Location") === payload.statusQueryGetUri]);
  const wait = { timeoutInMilliseconds: 600, retryIntervalInMilliseconds: 200 };
  const vain = await client.waitForCompletionOrCreateCheckStatusResponse(request, live, wait);
  tell("waiting in vain", [vain.status, vain.headers.get("Retry-After")]);
  await client.terminate(live, "the end");
  await becomes(live, "Terminated");
  const text = async (r) => JSON.parse(await new Response(r.body).text());
  const ended = await client.waitForCompletionOrCreateCheckStatusResponse(request, live, wait);
  tell("waiting for one that was terminated", [ended.status, (await text(ended)).runtimeStatus]);
  const failing = await client.startNew("NeedsFile", { input: file + " is not there" });
  await becomes(failing, "Failed");
  const failed = await client.waitForCompletionOrCreateCheckStatusResponse(request, failing, wait);
  tell("waiting for one that failed", [failed.status, (await text(failed)).runtimeStatus]);
  await fails("getStatus unknown", client.getStatus("unknown id"));

  const counter = new EntityId("Counter", "npm");
  tell("readEntityState before", (await client.readEntityState(counter)).entityExists);
  await client.signalEntity(counter, "add", 5);
  await client.signalEntity(counter, "add", 2);
  let entity = {};
  for (let n = 0; n < 300 && entity.entityState?.total !== 7; n++) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    entity = await client.readEntityState(counter);
  }
  tell("readEntityState", entity);
  await client.signalEntity(counter, "delete");
  for (let n = 0; n < 300 && entity.entityExists; n++) {
    await new Promise((resolve) => setTimeout(resolve, 100));
    entity = await client.readEntityState(counter);
  }
  tell("readEntityState after delete", entity.entityExists);
  tell("never called", [...never]);
})().catch((e) => {
  console.error(e);
  process.exit(1);
});
