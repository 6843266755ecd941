/** A whole environment: guess a number from 0 to 9. `npm install && npm run build && npm run guessing -- --address HOST:PORT --key KEY`. */

import type { Environment, Message, Score, StepResult, Task, Tool, ToolCall } from "./environment.js";
import { serve } from "./serve.js";

class Guessing implements Environment {
  milestones = { close: 0.2 };
  imageDigest = `node-${process.version}`;
  toolVersions = { node: process.version };
  private secret: number;
  private best = 10;
  private guesses = 0;

  constructor(task: Task) {
    this.secret = Number(task.seed % 10n);
  }

  tools(): Tool[] {
    const number = { type: "integer", minimum: 0, maximum: 9 };
    return [{ name: "guess", description: "Guess the number.", inputSchema: { type: "object", properties: { number }, required: ["number"] } }];
  }

  reset(): Message[] {
    return [{ role: "user", content: "Guess my number from 0 to 9." }];
  }

  step(call: ToolCall): StepResult {
    const number = call.arguments.number;
    if (!Number.isInteger(number)) return { content: "error: number must be an integer" };
    this.guesses += 1;
    this.best = Math.min(this.best, Math.abs(Number(number) - this.secret));
    const said = this.best === 0 ? "right" : Number(number) < this.secret ? "too low" : "too high";
    return { content: said, done: said === "right" };
  }

  score(): Score {
    const evidence = { best: this.best, guesses: this.guesses };
    return { outcome: this.best === 0 ? 1 : 0, milestones: { close: this.best <= 1 }, evidence };
  }
}

await serve((task) => new Guessing(task), "guessing");
