/** What the author of an environment implements; one instance serves one attempt of one execution. As `gyre.env.Environment`. */

export interface Task {
  taskId: string;
  taskType: string;
  /** Everything random in the environment follows from it. */
  seed: bigint;
  payload: Record<string, unknown>;
}

export interface ToolCall {
  callId: string;
  name: string;
  arguments: Record<string, unknown>;
}

export interface StepResult {
  /** Shown to the model; longer than the run's bound it is cut. */
  content: string;
  /** The agent's own act ended the task. */
  done?: boolean;
  /** The world's own limit ended it: timed_out, scored. */
  truncated?: boolean;
}

export interface Score {
  /** In [0, 1], from the state of the world, never from what the agent says. */
  outcome: number;
  milestones?: Record<string, boolean>;
  /** false: the evaluation itself failed; it is tried again and never becomes a zero. */
  valid?: boolean;
  evidence?: Record<string, unknown>;
}

/** OpenAI's function format, or MCP's (`name`, `description`, `inputSchema`). */
export type Tool = Record<string, any>;
export type Message = Record<string, any>;

export interface Environment {
  /** Milestone → weight. */
  milestones?: Record<string, number>;
  tools(): Tool[];
  reset(): Message[] | Promise<Message[]>;
  step(call: ToolCall): StepResult | Promise<StepResult>;
  score(): Score | Promise<Score>;
  /** What `score` may take, in milliseconds; a minute where it is not said. */
  scoreMs?: number;
  close?(): void | Promise<void>;
  /** What this world was made of (the reproducibility four). */
  imageDigest?: string;
  toolVersions?: Record<string, string>;
}

export type Factory = (task: Task) => Environment | Promise<Environment>;
