/** The entry point of an environment process: `--address HOST:PORT --key KEY --slots N`, or the variables that a run sets. */

import { parseArgs } from "node:util";
import { Attachment } from "./attachment.js";
import type { Factory } from "./environment.js";

export async function serve(factory: Factory, name: string): Promise<void> {
  const text = { type: "string" } as const;
  const { values } = parseArgs({ options: { address: text, key: text, slots: text }, strict: false });
  const address = values.address ?? process.env.GYRE_ROLLOUT_ADDRESS;
  const key = values.key ?? process.env.GYRE_ENVIRONMENT_KEY ?? "";
  const slots = Number(values.slots ?? process.env.GYRE_ENVIRONMENT_SLOTS ?? 8);
  if (!address) {
    console.error(`${name}: no address: set GYRE_ROLLOUT_ADDRESS or give --address`);
    process.exit(2);
  }
  const attachment = new Attachment(factory, name, slots, String(address), String(key));
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => attachment.stop());
  try {
    await attachment.serve();
  } catch (error) {
    console.error(`${name}: ${error instanceof Error ? error.message : error}`);
    process.exit(2);
  }
}
