/**
 * The environment process's side of `EnvironmentService.Attach`: one stream to the gateway, for ever. As `gyre.env.attachment`.
 *
 *     Hello ──▶  ◀── Welcome          ◀── Assignment ── Episode ── Started, Ended ──▶ ◀── Accepted
 *     Heartbeat ──▶ …                 ◀── Cancel, Suspend, Resume, Truncate
 *
 * The stream may break at any time: executions go on meanwhile, the next Hello names them, and each Started and Ended that was not accepted is sent
 * again, under the request id it had. Every message names execution and attempt; what is said of another attempt is ignored.
 */

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { credentials, Metadata, status } from "@grpc/grpc-js";
import {
  AttachRequest, Ended, EnvironmentServiceClient, Started,
  type AttachResponse, type Assignment, type Running, type Welcome,
} from "./api/gyre/api/rollout/v1/environments.js";
import { Episode } from "./episode.js";
import type { Factory, Task } from "./environment.js";
import { ChatModel } from "./model.js";
import { WallClock } from "./wall.js";

const RECONNECT_FIRST_MS = 100;
const RECONNECT_MAX_MS = 2000;
/** What a gateway may say that ends an execution; anything else that ends it early is `truncated`. */
const LIMITS = ["turns", "tokens", "calls"];
const OBSERVATION_BYTES_MAX = 64 * 1024;

interface Execution {
  executionId: string;
  attempt: number;
  wall: WallClock;
  isForgotten: boolean;
}

const keyOf = (of: { executionId: string; attempt: number }) => `${of.executionId} ${of.attempt}`;

export class Attachment {
  private readonly instance = randomUUID().replaceAll("-", "");
  private readonly executions = new Map<string, Execution>();
  private readonly unaccepted = new Map<string, AttachRequest>();
  private welcome: Welcome | undefined;
  private requests = 0;
  private write: (message: AttachRequest) => void = () => undefined;
  private end: () => void = () => undefined;
  private isStopped = false;
  /** Of the present stream. Before it nothing is sent but Hello and heartbeats: what was said on the stream before goes first. */
  private isWelcome = false;

  constructor(
    private readonly factory: Factory,
    private readonly name: string,
    private readonly slots: number,
    private readonly address: string,
    private readonly key: string,
  ) {}

  /** Until `stop`. Throws when the gateway refuses the key or this environment. */
  async serve(): Promise<void> {
    const client = new EnvironmentServiceClient(this.address, credentials.createInsecure());
    let waitMs = RECONNECT_FIRST_MS;
    while (!this.isStopped) {
      const wasAttached = await this.stream(client);
      waitMs = wasAttached ? RECONNECT_FIRST_MS : Math.min(2 * waitMs, RECONNECT_MAX_MS);
      if (!this.isStopped) await sleep(waitMs);
    }
    client.close();
  }

  stop(): void {
    this.isStopped = true;
    for (const execution of this.executions.values()) this.forget(execution);
    this.end();
  }

  /** One connection until it breaks; whether it got as far as a Welcome. */
  private stream(client: EnvironmentServiceClient): Promise<boolean> {
    const metadata = new Metadata({ waitForReady: true });
    if (this.key) metadata.set("authorization", `Bearer ${this.key}`);
    const call = client.attach(metadata);
    this.write = (message) => call.write(message);
    this.end = () => call.cancel();
    this.isWelcome = false;
    const beating = setInterval(
      () => this.write(AttachRequest.fromPartial({ requestId: this.requestId(), body: { $case: "heartbeat", value: {} } })),
      ((this.welcome?.heartbeatS || 1) * 1000) / 3,
    );
    return new Promise<boolean>((resolve, reject) => {
      call.on("data", (message: AttachResponse) => {
        if (message.body?.$case === "refused" && !this.isWelcome) {
          reject(new Error(`the gateway refused environment \`${this.name}\`: ${message.body.value.message}`));
        } else {
          this.take(message);
        }
      });
      call.on("error", (error: Error & { code?: number }) => {
        const never = [status.UNAUTHENTICATED, status.PERMISSION_DENIED, status.UNIMPLEMENTED];
        if (never.includes(error.code as status)) reject(new Error(`${this.address} refused this environment: ${error.message}`));
        else resolve(this.isWelcome);
      });
      call.on("end", () => resolve(this.isWelcome));
      this.write(this.hello());
    }).finally(() => {
      clearInterval(beating);
      this.isWelcome = false;
      this.write = () => undefined;
      call.cancel();
    });
  }

  /** Endings that are not on record yet count as running: nobody must start them over. */
  private hello(): AttachRequest {
    const known = new Map<string, Running>();
    for (const one of [...this.executions.values(), ...this.unaccepted.values()]) {
      known.set(keyOf(one), { executionId: one.executionId, attempt: one.attempt });
    }
    const value = { environment: this.name, slots: this.slots, instanceId: this.instance, running: [...known.values()] };
    return AttachRequest.fromPartial({ requestId: this.requestId(), body: { $case: "hello", value } });
  }

  private take(message: AttachResponse): void {
    const body = message.body;
    const execution = this.executions.get(keyOf(message));
    switch (body?.$case) {
      case "welcome":
        this.welcome = body.value;
        for (const gone of body.value.unknown) {
          this.forget(this.executions.get(keyOf(gone)));
          for (const [id, said] of this.unaccepted) if (keyOf(said) === keyOf(gone)) this.unaccepted.delete(id);
        }
        this.isWelcome = true;
        for (const said of this.unaccepted.values()) this.write(said);
        break;
      case "assignment":
        this.begin(message.executionId, message.attempt, body.value);
        break;
      case "cancel":
        this.forget(execution);
        break;
      case "suspend":
        execution?.wall.pause();
        break;
      case "resume":
        execution?.wall.resume();
        break;
      case "truncate":
        execution?.wall.expire(LIMITS.includes(body.value.reason) ? body.value.reason : "truncated");
        break;
      case "accepted":
      case "refused":
        this.unaccepted.delete(message.requestId);
        if (body.$case === "refused") console.warn(`${keyOf(message)}: the gateway refused a message: ${body.value.message}`);
        break;
    }
  }

  private begin(executionId: string, attempt: number, assignment: Assignment): void {
    for (const other of this.executions.values()) {
      if (other.executionId !== executionId) continue;
      if (other.attempt >= attempt) return; // said twice, or late
      this.forget(other);
    }
    const execution: Execution = { executionId, attempt, wall: new WallClock(), isForgotten: false };
    this.executions.set(keyOf(execution), execution);
    void this.run(execution, assignment).finally(() => this.executions.delete(keyOf(execution)));
  }

  private async run(execution: Execution, given: Assignment): Promise<void> {
    const say = (body: AttachRequest["body"]) => {
      if (execution.isForgotten) return;
      const { executionId, attempt } = execution;
      const message = AttachRequest.fromPartial({ requestId: this.requestId(), executionId, attempt });
      message.body = body;
      this.unaccepted.set(message.requestId, message);
      if (this.isWelcome) this.write(message); // else it is sent after the Welcome, and an Ended never before its Started
    };
    let value: Ended;
    try {
      const task: Task = {
        taskId: given.taskId, taskType: given.taskType, seed: given.seed, payload: JSON.parse(given.payloadJson || "{}"),
      };
      const limits = {
        wallS: given.wallS, turnsMax: given.turnsMax, observationBytesMax: this.welcome?.observationBytesMax || OBSERVATION_BYTES_MAX,
      };
      const fixed = {
        model: this.welcome?.model || "policy", max_tokens: given.outputTokensMax, temperature: given.temperature, top_p: given.topP,
      };
      const model = new ChatModel(() => this.welcome?.apiBase ?? "", given.apiKey, fixed, given.traceparent);
      const started = (made: { imageDigest?: string; toolVersions?: Record<string, string> }) =>
        say({ $case: "started", value: Started.fromPartial({ imageDigest: made.imageDigest ?? "", toolVersions: made.toolVersions ?? {} }) });
      value = await new Episode(this.factory, task, limits, model, execution.wall, started).run();
    } catch (error) {
      value = Ended.fromPartial({ ending: "failed", reason: "environment_invalid", detail: String(error).slice(-2000) });
    }
    say({ $case: "ended", value });
  }

  /** Stop it, and say no more about it. */
  private forget(execution: Execution | undefined): void {
    if (!execution) return;
    execution.isForgotten = true;
    execution.wall.expire("cancelled");
    for (const [id, said] of this.unaccepted) if (keyOf(said) === keyOf(execution)) this.unaccepted.delete(id);
  }

  private requestId(): string {
    this.requests += 1;
    return `${this.instance.slice(0, 8)}-${this.requests}`;
  }
}
