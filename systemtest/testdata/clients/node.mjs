// Runs follow.mjs with Node's packages. What is given comes as JSON in the first argument; what was seen is printed as JSON.
import { EventSource } from "eventsource";
import WebSocket from "ws";
import { all } from "./follow.mjs";

console.log(JSON.stringify(await all({ ...JSON.parse(process.argv[2]), EventSource, WebSocket })));
