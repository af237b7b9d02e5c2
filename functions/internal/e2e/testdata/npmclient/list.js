// Starts instances with DurableClient, and prints the IDs that its lists have, a list a line.
// node list.js BASE_URL TASK_HUB MODE HOW_MANY
"use strict";
const { DurableClient } = require("durable-functions/lib/src/durableClient/DurableClient");

const [base, hub, mode, number] = process.argv.slice(2);
const query = `taskHub=${hub}&connection=Storage`;
const binding = {
  taskHubName: hub,
  creationUrls: { createNewInstancePostUri: `${base}/orchestrators/{functionName}[/{instanceId}]?${query}` },
  managementUrls: { id: "INSTANCEID", statusQueryGetUri: `${base}/instances/INSTANCEID?${query}` },
  baseUrl: base,
  requiredQueryStringParameters: query,
};
if (mode === "rpc") {
  binding.rpcBaseUrl = base + "/";
}
const client = new DurableClient(binding);

(async () => {
  const began = new Date(Date.now() - 60000);
  const ids = [...Array(Number(number)).keys()].map((n) => `listed ${String(n).padStart(4, "0")}`);
  for (let n = 0; n < ids.length; n += 25) {
    await Promise.all(ids.slice(n, n + 25).map((instanceId) => client.startNew("Waits", { instanceId })));
  }
  const print = (list) => console.log(JSON.stringify(list.map((s) => s.instanceId).sort()));
  print(await client.getStatusAll());
  print(await client.getStatusBy({ createdTimeFrom: began }));
  print(await client.getStatusBy({ createdTimeFrom: began, runtimeStatus: ["Pending", "Running"] }));
  print(await client.getStatusBy({ runtimeStatus: ["Failed"] }));
})();
