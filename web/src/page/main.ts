// The page, and its worker. The bundle also exports the engine, so that tests run what browsers run.
export * from "../engine/index.ts";
export { unwrapped } from "./wrapped.ts";

import { open } from "./app.ts";
import { serveSessions } from "./worker.ts";

if (typeof document !== "undefined") {
  void open();
} else if (typeof location !== "undefined") {
  serveSessions();
}
