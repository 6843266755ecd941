/**
 * Drives one attempt of one execution:  reset ──▶ messages ──▶ model ──▶ tool calls ──▶ step ──▶ … ──▶ score ──▶ close
 *
 * An error of the environment is an ending of its own (failed) and never a reward; a limit that is reached is scored on what is there.
 */

import { Ended, Evaluation } from "./api/gyre/api/rollout/v1/environments.js";
import type { Environment, Factory, Message, Score, Task, Tool } from "./environment.js";
import { ChatModel, Limit } from "./model.js";
import type { WallClock } from "./wall.js";

const SCORE_TRIES_MAX = 3;
/** A step under way when the wall clock ends may still finish for so long; only then has it hung and is left behind. */
const GRACE_MS = 1000;
/** A `score` that takes longer has hung, unless the environment says otherwise (`scoreMs`), and so has a `close`. As `gyre.env`. */
const SCORE_MS = 60_000;
const CLOSE_MS = 10_000;

export interface Limits {
  wallS: number;
  turnsMax: number;
  observationBytesMax: number;
}

type Over = { ending: "completed" | "timed_out" | "failed"; reason: string; detail?: string };

class Hung extends Error {}

export class Episode {
  private environment: Environment | undefined;
  private calls = 0;
  private tools: Tool[] = [];

  constructor(
    private readonly factory: Factory,
    private readonly task: Task,
    private readonly limits: Limits,
    private readonly model: ChatModel,
    private readonly wall: WallClock,
    private readonly started: (environment: Environment) => void,
  ) {}

  /** Closes the environment exactly once, also after errors. */
  async run(): Promise<Ended> {
    this.wall.start(this.limits.wallS);
    let over: Over;
    let evaluation: Evaluation | undefined;
    try {
      const messages = await this.start();
      over = await this.converse(messages);
      if (over.ending !== "failed") evaluation = await this.judge();
    } catch (error) {
      const hung = error instanceof Hung;
      over = { ending: "failed", reason: hung ? "environment_hung" : "environment_error", detail: textOf(error) };
      evaluation = undefined;
    } finally {
      this.wall.stop();
      await within(CLOSE_MS, "close", () => this.environment?.close?.()).catch((error) => console.warn(`close() failed: ${error}`));
    }
    const { ending, reason } = over;
    return Ended.fromPartial({ ending, reason, detail: (over.detail ?? "").slice(-2000), evaluation, externalCalls: this.calls });
  }

  private async start(): Promise<Message[]> {
    this.environment = await this.inTime("the factory", () => this.factory(this.task));
    const messages = await this.inTime("reset", () => this.environment!.reset());
    this.tools = this.environment.tools().map(openaiTool);
    this.started(this.environment);
    return [...messages];
  }

  private async converse(messages: Message[]): Promise<Over> {
    try {
      for (let turn = 0; ; turn++) {
        if (turn >= this.limits.turnsMax) return { ending: "timed_out", reason: "turns" };
        const reply = await this.model.complete(messages, this.tools, this.wall);
        if (!reply.tool_calls?.length) return { ending: "completed", reason: "stopped" };
        messages.push(reply);
        for (const call of reply.tool_calls) {
          const said = await this.act(call);
          if (said.truncated) return { ending: "timed_out", reason: "turns", detail: "the world's own limit is reached" };
          if (said.done) return { ending: "completed", reason: "submitted" };
          const content = cut(said.content, this.limits.observationBytesMax);
          messages.push({ role: "tool", tool_call_id: call.id, content });
        }
      }
    } catch (error) {
      if (error instanceof Limit) {
        return { ending: "timed_out", reason: error.reason === "wall" ? this.wall.reason : error.reason, detail: error.message };
      }
      if (error instanceof Hung) return { ending: "timed_out", reason: this.wall.reason, detail: error.message };
      throw error;
    }
  }

  /** What the model got wrong it is told; a turn like any other. */
  private async act(call: any) {
    const names = this.tools.map((tool) => tool.function.name);
    const { name = "", arguments: text = "" } = call.function ?? {};
    if (!names.includes(name)) return { content: `error: there is no tool \`${name}\`; tools: ${names.join(", ")}` };
    let parsed: unknown;
    try {
      parsed = JSON.parse(text || "{}");
    } catch (error) {
      return { content: `error: the arguments of \`${name}\` are not a JSON object: ${error}` };
    }
    if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
      return { content: `error: the arguments of \`${name}\` are not a JSON object` };
    }
    this.calls += 1;
    const given = { callId: call.id ?? "", name, arguments: parsed as Record<string, unknown> };
    const said = await this.inTime("step", () => this.environment!.step(given));
    if (typeof said?.content !== "string") throw new Error("step() returned no StepResult with text");
    return said;
  }

  private async judge(): Promise<Evaluation> {
    let problem = "";
    for (let tries = 1; tries <= SCORE_TRIES_MAX; tries++) {
      try {
        const score: Score = await within(this.environment!.scoreMs ?? SCORE_MS, "score", () => this.environment!.score());
        if (score.valid ?? true) {
          return Evaluation.fromPartial({
            outcome: score.outcome, valid: true, milestones: score.milestones ?? {}, milestoneWeights: this.environment!.milestones ?? {},
            evidenceJson: JSON.stringify(score.evidence ?? {}), tries,
          });
        }
        problem = JSON.stringify(score.evidence ?? {});
      } catch (error) {
        if (error instanceof Hung) throw error; // another try would find it where it hangs
        problem = String(error);
      }
    }
    const evidenceJson = JSON.stringify({ evaluation_failed: problem.slice(-2000) });
    return Evaluation.fromPartial({ outcome: 0, valid: false, evidenceJson, tries: SCORE_TRIES_MAX });
  }

  /** Inside what is left of the wall clock, with a last grace. */
  private async inTime<T>(what: string, work: () => T | Promise<T>): Promise<T> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      const cutOff = () => (timer = setTimeout(() => reject(new Hung(`${what} did not return in time`)), GRACE_MS));
      if (this.wall.cut.aborted) cutOff();
      else this.wall.cut.addEventListener("abort", cutOff, { once: true });
    });
    late.catch(() => undefined);
    try {
      return await Promise.race([Promise.resolve().then(work), late]);
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Throws Hung where it takes longer; it goes on in vain. */
async function within<T>(ms: number, what: string, work: () => T | Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Hung(`${what}() did not return within ${ms / 1000} s`)), ms);
  });
  try {
    return await Promise.race([Promise.resolve().then(work), late]);
  } finally {
    clearTimeout(timer);
  }
}

function openaiTool(tool: Tool): Tool {
  if (tool.function) return tool;
  return { type: "function", function: { name: tool.name, description: tool.description ?? "", parameters: tool.inputSchema } };
}

function cut(text: string, bytesMax: number): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= bytesMax) return text;
  const note = `\n[cut: ${bytes.length} bytes, the first ${bytesMax} at most are shown]`;
  const kept = bytes.subarray(0, Math.max(0, bytesMax - note.length)).toString();
  return kept.replace(/\uFFFD+$/, "") + note;
}

function textOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
