/** The model as one execution sees it. What is temporary is asked again with the same messages: the gateway knows a repeated request. */

import { setTimeout as sleep } from "node:timers/promises";
import type { Message, Tool } from "./environment.js";
import type { WallClock } from "./wall.js";

const RETRY_FIRST_MS = 200;
const RETRY_MAX_MS = 2000;
/** A gateway that has just restarted may not know a key at once. */
const UNKNOWN_KEY_GRACE_MS = 20_000;

export class Limit extends Error {
  constructor(readonly reason: "turns" | "tokens" | "calls" | "context" | "wall", message: string) {
    super(message);
  }
}
export class Refused extends Error {}

export class ChatModel {
  constructor(
    private readonly apiBase: () => string,
    private readonly apiKey: string,
    private readonly fixed: Record<string, unknown>,
    private readonly traceparent: string,
  ) {}

  /** The assistant's message. Throws Limit, Refused. */
  async complete(messages: Message[], tools: Tool[], wall: WallClock): Promise<Message> {
    const body = JSON.stringify({ ...this.fixed, messages, ...(tools.length ? { tools } : {}) });
    let waitMs = RETRY_FIRST_MS;
    let unknownSinceMs: number | null = null;
    for (;;) {
      await wall.going();
      if (wall.cut.aborted) throw new Limit("wall", "the wall clock ended while the model was being asked");
      const reply = await this.attempt(body, wall.cut);
      if (reply?.status === 200) return messageOf(reply.text);
      if (reply && [401, 403, 409, 410].includes(reply.status)) {
        unknownSinceMs ??= performance.now();
        if (performance.now() - unknownSinceMs > UNKNOWN_KEY_GRACE_MS) {
          throw new Refused(`the gateway does not take this execution's key: ${reply.status} ${reply.text.slice(0, 300)}`);
        }
      } else if (reply && reply.status < 500 && ![408, 425, 429].includes(reply.status)) {
        refuse(reply.status, reply.text);
      } else {
        unknownSinceMs = null;
      }
      await sleep(reply?.retryAfterMs ?? waitMs, undefined, { signal: wall.cut }).catch(() => undefined);
      waitMs = Math.min(2 * waitMs, RETRY_MAX_MS);
    }
  }

  private async attempt(body: string, signal: AbortSignal) {
    const headers: Record<string, string> = {
      authorization: `Bearer ${this.apiKey}`,
      "content-type": "application/json",
      "x-gyre-role": "main",
    };
    if (this.traceparent) headers.traceparent = this.traceparent;
    try {
      const reply = await fetch(`${this.apiBase().replace(/\/$/, "")}/chat/completions`, { method: "POST", body, headers, signal });
      const afterS = Number(reply.headers.get("retry-after") ?? NaN);
      return { status: reply.status, text: await reply.text(), retryAfterMs: Number.isFinite(afterS) ? Math.max(50, afterS * 1000) : undefined };
    } catch {
      return undefined;
    }
  }
}

function messageOf(text: string): Message {
  try {
    return JSON.parse(text).choices[0].message;
  } catch {
    throw new Refused(`the gateway's answer is no chat completion: ${text.slice(0, 200)}`);
  }
}

function refuse(status: number, text: string): never {
  let code = "";
  let message = text;
  try {
    const { error } = JSON.parse(text);
    code = String(error.code ?? error.type ?? "");
    message = String(error.message ?? text);
  } catch {
    /* not the gateway's own form: its text says what it says */
  }
  if (code === "context_length_exceeded" || status === 413) throw new Limit("context", message.slice(0, 300));
  const reason = ({ turns_exceeded: "turns", tokens_exceeded: "tokens", calls_exceeded: "calls" } as const)[code];
  if (reason) throw new Limit(reason, message.slice(0, 300));
  throw new Refused(`the gateway refused a model call: ${status} ${message.slice(0, 300)}`);
}
